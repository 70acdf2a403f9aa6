# The own part is added before it is computed.
s/    if \(part->done\)\n(        SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->pull)/    if (0)\n\1/
