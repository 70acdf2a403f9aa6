# What other contexts do is not looked at.
s/    if \(p->foreign\)\n/    if (0)\n/
