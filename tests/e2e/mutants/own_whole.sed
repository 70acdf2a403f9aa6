# A rank does not cut its own shard, which the others cut.
s/return (group \+ 1 >= p->groups) \|\| (p->groups > 64 \|\| \(p->borders >> group & 1\));/return \1 || (p->step > 0 \&\& (\2));/
