# What parts have written is not put back.
s/ && copy\(gemm, split, walk, done, kept, true, stream\) != SLR_OK\)/ \&\& !split)/
