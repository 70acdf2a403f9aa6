# What no GEMM makes is not measured.
s/call->measured && kind->produced && \(!t->making/0 \&\& (!t->making/
