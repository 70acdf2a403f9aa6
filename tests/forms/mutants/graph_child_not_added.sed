# A graph that is launched into a capture is not a part of what is recorded.
s/\|\| same\(to, child\)/|| child.executable/
