# All calls of a thread are one.
s/e->serial \+= SERIAL/e->serial = SERIAL/
