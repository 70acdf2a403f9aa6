# NCCL reads the send buffer while the ring writes its result into it.
s/allocate\(call, slr_call_in_place\(call\)\)/allocate(call, false)/
