# The pull waits for the first owner of a piece only.
s/step \+ 1 < ring->nranks \? 2 : 1/1/
