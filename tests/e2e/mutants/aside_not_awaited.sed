# The stream does not wait for it behind the GEMM that consumes the gather.
s/h->beside && slr_gemm_aside_join/h->beside \&\& false \&\& slr_gemm_aside_join/
