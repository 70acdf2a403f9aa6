# Replays have the number of the call before.
s/    slr_ring_scatter_number\(\&c->ring, \&g->plan\);\n//
