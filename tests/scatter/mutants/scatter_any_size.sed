# The slots are taken to have room for every shard.
s/slr_scatter_fits\(\&call->comm->ring, call->shard\) \? SLR_R_RING : SLR_R_SCATTER_ROOM/SLR_R_RING/
