# A record on the legacy default stream is not looked at.
s/if \(p->ctx == ctx \&\& !name \&\& p->stream \&\& p->blocking\)/if (0)/
