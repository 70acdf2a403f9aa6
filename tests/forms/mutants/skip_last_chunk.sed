# The fused GEMM waits for the first chunk only; the ring is slow (slow_pull), so that the last one is still on its way.
s/SLR_TRY\((slr_ring_wait_chunk\([^;]*)\);/if (*chunk == 0)\n            SLR_TRY(\1);/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < 100; i++) SLR_TRY(\1);/
