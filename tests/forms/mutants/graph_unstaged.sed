# A replay does not copy to its slots what its peers take from there.
s/return stages\(g->route, ring->rank, ring->nranks\) \? /return ring->nranks == 0 ? /
