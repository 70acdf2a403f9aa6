# The own shard is copied at the end of the pull.
s/(own, g->send,\s+g->plan.shard,\s+)g->stream/\1ring->pull/
