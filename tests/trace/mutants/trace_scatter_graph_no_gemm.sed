# The record of the GEMM's parts is not gone on with.
s/p \? p->timing : NULL, &g->stamps/NULL, \&g->stamps/
