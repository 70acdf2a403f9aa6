# The pull waits for the first owner of a piece only.
s/more \? 2 : 1/1/
