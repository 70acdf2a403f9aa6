# The fused GEMM waits for the first chunk only; the ring is slow (slow_pull), so that the last one is still on its way.
s/if \(part->step > 0\)\s+return slr_ring_wait_chunk/if (part->step > 0 \&\& part->chunk > 0)\n        return SLR_OK;\n    &/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < 100; i++) SLR_TRY(\1);/
