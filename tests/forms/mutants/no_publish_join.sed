# The end of the gather does not include the staging copy. It shows when a peer publishes early and reads late: rank 1 does here.
s/SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->tail, ring->published, 0\)\);/{}/
s/if \(sends\)(\s+SLR_TRY\(behind_pull\(ring, ring->publish)/if (sends \&\& ring->rank != 1)\1/
