# Later parts of a sum have the caller's beta.
s/adding\.beta = slr_gemm_one\(gemm->ctype\);//
