# The parts of the GEMM are not the call's.
s/!m \|\| &m->timing != gemm/true/
