# What is staged of a shard that moves does not wait for it.
s/return sends \? SLR_CU\(cuStreamWaitEvent, ring->publish, ring->owned, 0\)/return sends ? SLR_OK/
