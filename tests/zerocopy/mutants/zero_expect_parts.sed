# A part of a GEMM reads what has been copied from an expected place before the owner has settled it. Corrections are slow.
s/if \(ring->settling\)(\s+SLR_TRY\(SLR_CU\(cuStreamWaitEvent, stream)/if (0)\1/
