# Captures of a thread's default stream are left to NCCL, which other ranks do not know.
s/return slr_graphs_take\(c, call->shard\)/return call->stream != CU_STREAM_PER_THREAD \&\& slr_graphs_take(c, call->shard)/
