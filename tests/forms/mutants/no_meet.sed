# The streams of a group do not wait for each other before it.
s/return SLR_CU\(cuStreamWaitEvent, stream, ring->published, 0\);/return SLR_OK;/
