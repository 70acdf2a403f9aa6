# A captured reduce-scatter is taken for one that runs now.
s/(\n        why = slr_gather_here\(call\);)(\n    if \(why != SLR_R_RING\))/\1\n    if (why == SLR_R_CAPTURE)\n        why = SLR_R_RING;\2/
