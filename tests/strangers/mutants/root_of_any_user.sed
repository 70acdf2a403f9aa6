# A rank introduces itself to whoever listens.
s/if \(!slr_peer_is_ours\(s, &root\)\)/if (!slr_peer_is_ours(s, \&root) \&\& 0)/
