# The stream does not wait for it behind the GEMM that consumes the gather.
s/->beside && slr_gemm_aside_join/->beside \&\& false \&\& slr_gemm_aside_join/
