# A rank introduces itself to whoever listens.
s/if \(!slr_peer_is_ours\(s, &hub\)\)/if (!slr_peer_is_ours(s, \&hub) \&\& 0)/
