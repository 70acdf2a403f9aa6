# Nodes behind the GEMM may have changed C.
s/\(at\.nodes == 1 \|\| is_last\(p->last\)\)/true/
