# The fused GEMM does not wait for the first chunk that arrives.
s/if \(slr_ring_wait_chunk/if ((q > 0 || step > 1) \&\& slr_ring_wait_chunk/
