# A GEMM that is to stay whole does not.
s/ \|\| slr_get\(SLR_S_STRICT\)//
