# The fused GEMM does not wait for the first chunk that arrives.
s/if \(p->step > 0 \&\& slr_ring_wait_chunk/if (p->step > 0 \&\& (p->chunk > 0 || p->step > 1) \&\& slr_ring_wait_chunk/
