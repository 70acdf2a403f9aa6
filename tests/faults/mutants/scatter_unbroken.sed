# A reduce-scatter ends without a look at whether a failed peer has written over what was added.
s/    for \(int step = 1; step < ring->nranks; step\+\+\)\n        slr_memops_wait_zero\(&m, slr_dflag\(ring, SLR_FLAG_BROKEN, peer_at\(ring, step\), ring->rank\)\);\n//
