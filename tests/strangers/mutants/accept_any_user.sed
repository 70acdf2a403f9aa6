# The root takes in processes of every user.
s/if \(!slr_peer_is_ours\(fd, &who\)\) \{\n        turn_away/if (0) {\n        turn_away/
