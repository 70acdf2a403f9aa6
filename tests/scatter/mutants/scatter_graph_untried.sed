# What is captured goes to the ring whatever the trials have found.
s/    if \(slr_get\(SLR_S_REDUCE_SCATTER\) == SLR_SCATTERS_AUTO \&\& !slr_trials_captured\(call->comm, call->shard, true\)\)\n        return SLR_R_CAPTURE;\n//
