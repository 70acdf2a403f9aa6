# The fused GEMM does not wait for the first chunk that arrives.
s/if \(part->step > 0 \&\& slr_ring_wait_chunk/if (part->step > 0 \&\& (part->chunk > 0 || part->step > 1) \&\& slr_ring_wait_chunk/
