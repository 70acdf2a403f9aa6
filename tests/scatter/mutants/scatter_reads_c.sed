# A GEMM that reads C may be computed in blocks.
s/ \|\| !slr_gemm_beta_is_zero\(gemm\)//
