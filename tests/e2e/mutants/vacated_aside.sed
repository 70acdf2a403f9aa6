# The shard moves on a stream of its own, before which peers are told that it is there.
s/copy_own\(ring, g, g->vacated, ring->pull\)/copy_own(ring, g, g->vacated, ring->own)/
