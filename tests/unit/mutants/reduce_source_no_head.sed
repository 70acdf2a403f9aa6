# Elements before the first multiple of 16 are taken to be none.
s/\(16 - \(\(size_t\)a->out \& 15\)\) % 16/0/
