# The stream does not wait for the sums.
s/    SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->tail, ring->settled, 0\)\);\n//
