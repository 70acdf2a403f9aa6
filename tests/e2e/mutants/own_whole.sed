# A rank does not cut its own shard, which the others cut.
s/return (group \+ 1 >= walk->groups) \|\| (walk->groups > 64 \|\| \(walk->borders >> group & 1\));/return \1 || (walk->step > 0 \&\& (\2));/
