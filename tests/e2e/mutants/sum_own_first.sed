# Each rank adds the summands of its own shard first.
s/col = walk->owner \* shard \+ border/col = (walk->owner + walk->rank) % walk->nranks * shard + border/
s/\.cols = last \* shard \+ border\(walk, end\) - col\}/.cols = border(walk, end) - border(walk, walk->begin)}/
