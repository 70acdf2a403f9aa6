# The stream does not wait for it behind the GEMM that consumes the gather.
s/h->aside && slr_gemm_aside_join/h->aside \&\& false \&\& slr_gemm_aside_join/
