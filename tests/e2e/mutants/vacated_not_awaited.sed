# Parts write where the own shard was without waiting until it has moved out of there.
s/if \(g->vacated && slr_ring_wait_own\(/if (false \&\& slr_ring_wait_own(/
