# Captures of a thread's default stream are left to NCCL, which other ranks do not know.
s/info\(call->stream, &capture, &graph\) && graph/call->stream != CU_STREAM_PER_THREAD \&\& &/
