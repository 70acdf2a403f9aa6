# The reader that comes second takes the shard from the slot, whatever the owner said.
s/if \(theirs->place\.generation \&\& route->from\)/if (0)/
