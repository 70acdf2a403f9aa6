# The fused GEMM does not wait for the last chunk; the ring is slow (slow_pull), so that the chunk is still on its way.
s/if \(slr_ring_wait_chunk/if ((q + 1 < g->plan.chunks || step + 1 < ring->nranks) \&\& slr_ring_wait_chunk/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < 100; i++) SLR_TRY(\1);/
