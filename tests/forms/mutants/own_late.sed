# The own shard is copied at the end of the pull.
s/(own, c->send,\s+c->plan.shard,\s+)c->stream/\1ring->pull/
