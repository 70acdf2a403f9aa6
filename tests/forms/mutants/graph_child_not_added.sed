# What a child graph holds is not a part of what its parent holds.
s/\|\| same\(to, child\)/|| !child.executable/
