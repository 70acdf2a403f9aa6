# The stream does not wait until all has been sent.
s/    SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->tail, ring->published, 0\)\);\n//
