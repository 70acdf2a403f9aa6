# That GEMM may use the memory of the one aside.
s/->beside && !slr_gemms_apart/->beside \&\& false \&\& !slr_gemms_apart/
