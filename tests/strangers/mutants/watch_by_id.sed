# A process is known by its id alone.
s/p->number != number \|\| //
