# The copy of the own shard does not wait for what stands before the gather.
s/SLR_TRY\(behind_pull\(ring, ring->own\)\);/{}/
