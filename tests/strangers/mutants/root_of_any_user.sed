# A rank introduces itself to whoever listens.
s/if \(!slr_peer_is_ours\(sock, &root\)\)/if (!slr_peer_is_ours(sock, \&root) \&\& 0)/
