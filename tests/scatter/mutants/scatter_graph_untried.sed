# What is captured goes to the ring whatever the trials have found.
s/slr_get\(SLR_S_REDUCE_SCATTER\) != SLR_SCATTERS_AUTO \|\|\n +slr_trials_captured\(call->comm, call->shard, call->flow->kind\)/true/
