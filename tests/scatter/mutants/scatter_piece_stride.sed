# The next piece of a shard begins where the first one did.
s/s\.send = all->send \+ at;/s.send = all->send;/
