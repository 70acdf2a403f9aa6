# Whether memory that a shard has moved out of is given to another process is not asked.
s/slr_gather_source\(g\)/g->send/
