# A rank does not wait for the others' streams.
s/        slr_memops_wait\(m, slr_dflag\(ring, SLR_FLAG_OPEN, ring->rank, peer_at\(ring, step\)\), last\);/        (void)last;/
