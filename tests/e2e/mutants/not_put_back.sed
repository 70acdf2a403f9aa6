# What parts have written is not put back.
s/ && copy\(g, s, walk, done, kept, true, stream\) != SLR_OK\)/ \&\& !s)/
