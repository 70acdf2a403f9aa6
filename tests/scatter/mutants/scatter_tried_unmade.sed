# What no GEMM makes is not measured.
s/call->measured \&\& call->scatter \&\& \(!t->making/0 \&\& (!t->making/
