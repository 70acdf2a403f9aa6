# Nor at the events that it carries.
s/return r == CUDA_SUCCESS && carried \? slr_real\.cuStreamQuery\(ring->carrier\) : r;/return r;/
