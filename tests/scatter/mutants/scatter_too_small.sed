# SLIPRING_MIN_BYTES is nothing to it.
s/call->shard \* \(size_t\)call->comm->nranks < slr_get\(SLR_S_MIN_BYTES\) \? SLR_R_TOO_SMALL : SLR_R_RING/SLR_R_RING/
