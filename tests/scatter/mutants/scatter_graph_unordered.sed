# Nothing orders the steps of a reduce-scatter in a graph.
s/if \(ring->recorded \|\| !s->entry\)/if (false)/
s/if \(ring->recorded\)(\n *SLR_TRY\(slr_ring_in_turn)/if (false)\1/
