# Nothing hangs, and it is released all the same.
s/if \(in != SLR_IN_GEMM_NONE && !c->told_in_gemm\)/if (!c->told_in_gemm)/
