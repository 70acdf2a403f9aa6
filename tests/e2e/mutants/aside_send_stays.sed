# Parts behind it may read the shard where the program had it.
s/h->origin && !h->aside &&/h->origin \&\&/
