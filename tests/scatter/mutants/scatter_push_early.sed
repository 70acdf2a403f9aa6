# A part is sent before it is computed.
s/    if \(part->done\)\n(        SLR_TRY\(SLR_CU\(cuStreamWaitEvent, ring->publish)/    if (0)\n\1/
