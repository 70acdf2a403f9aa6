# A thread that hangs in a GEMM is never told.
s/now - e->since < SLR_IN_GEMM_STUCK_MS/now >= e->since/
