# What the shard moves out of is taken for memory like any other.
s/\(g->vacated && overlap/(false \&\& overlap/
