# The shard moves on a stream of its own, before which peers are told that it is there.
s/cuMemcpyAsync, g->send, g->vacated, g->plan.shard, ring->pull/cuMemcpyAsync, g->send, g->vacated, g->plan.shard, ring->own/
