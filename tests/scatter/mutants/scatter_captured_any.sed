# Nodes behind the GEMM may have changed C.
s/\(!p->late \|\| is_last\(p->last\)\)/true/
