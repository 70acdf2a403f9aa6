# SLIPRING_MIN_BYTES is nothing to it.
s/call->comm->least_bytes : slr_get\(SLR_S_MIN_BYTES\)/call->comm->least_bytes : 0/
