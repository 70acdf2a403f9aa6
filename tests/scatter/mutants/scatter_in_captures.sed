# A captured reduce-scatter is taken for one that runs now.
s/    return why == SLR_R_RING \? flow->choose/    if (why == SLR_R_CAPTURE \&\& flow->kind->produced)\n        why = SLR_R_RING;\n    return why == SLR_R_RING ? flow->choose/
