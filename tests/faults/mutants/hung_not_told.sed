# A thread that hangs in a GEMM is never told.
s/e->hung < limit/e->hung <= UINT64_MAX/
