# That GEMM may use the memory of the one aside.
s/->aside && !slr_gemms_apart/->aside \&\& false \&\& !slr_gemms_apart/
