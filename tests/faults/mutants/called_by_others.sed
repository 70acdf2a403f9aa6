# A call that NCCL is left is told by every communicator of the context, as a GEMM is.
s/follow \? c->shared\.ctx : NULL/c->shared.ctx/
