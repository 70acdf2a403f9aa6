# The end of the gather does not include the staging copy. It shows when a peer publishes early and reads late: rank 1 does here.
s/SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->tail, ring->published, 0\)\);/{}/
s/if \(publish\)(\s+SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->publish, begin)/if (publish \&\& ring->rank != 1)\1/
