# Where shards are copied whole for a GEMM, only the last one has an event of this gather.
s/if \(!ring->once \|\| step \+ 1 == ring->nranks\)/if (step + 1 == ring->nranks)/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < 40; i++) SLR_TRY(\1);/
