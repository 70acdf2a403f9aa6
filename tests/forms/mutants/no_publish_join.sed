# The end of the gather does not include the staging copy. It shows when a peer publishes early and reads late: rank 1 does here.
s/SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->pull, ring->published, 0\)\);/;/
s/SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->publish, ring->entry, 0\)\);/if (ring->rank != 1)\n        &/
