# A graph is destroyed although there are executable ones of it.
s/at && at->made > 0/at \&\& at->made > 1000/
