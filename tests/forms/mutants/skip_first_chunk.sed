# The fused GEMM does not wait for the first chunk that arrives.
s/SLR_TRY\((slr_ring_wait_chunk\([^;]*)\);/if (step > 1 || *chunk > 0)\n            SLR_TRY(\1);/
