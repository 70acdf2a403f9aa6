# An event that carries a gather completes before it.
s/    SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->carrier, ring->finished, 0\)\);\n//
