# The result is written before what still uses the buffer.
s/    if \(s->before\)/    if (0)/
