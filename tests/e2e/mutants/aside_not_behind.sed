# The GEMM aside does not wait for what stands on its call's stream.
s/SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->aside, ring->asked, 0\)\);//
