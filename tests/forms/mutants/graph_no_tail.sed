# The tail is not drawn into the capture before the gather's end.
s/    if \(ring->recorded\)\n        SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->tail, begin, 0\)\);\n//
