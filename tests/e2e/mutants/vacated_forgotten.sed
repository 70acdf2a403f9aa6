# What the shard moves out of is taken for memory like any other.
s/slr_gather_source\(g\)/g->send/
