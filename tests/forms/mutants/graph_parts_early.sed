# Parts of a GEMM do not wait for what comes from slots.
s/    SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->publish, ring->published, 0\)\);\n//
