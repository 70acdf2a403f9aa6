# What is recorded counts as if it ran.
s/    if \(captures\)\n/    if (captures \&\& call->nccl == NULL)\n/
