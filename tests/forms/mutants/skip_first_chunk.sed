# The fused GEMM does not wait for the first chunk that arrives.
s/if \(part->step > 0\)\s+return slr_ring_wait_chunk/if (part->step == 1 \&\& part->chunk == 0)\n        return SLR_OK;\n    &/
