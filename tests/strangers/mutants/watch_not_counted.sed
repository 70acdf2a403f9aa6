# The first that is done closes the descriptor for all.
s/--p->users == 0/--p->users + 1/
