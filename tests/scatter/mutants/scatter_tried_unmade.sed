# What no GEMM makes is not measured.
s/call->measured && call->scatter && !call->made\.m/0/
