# What is on a thread's default stream is noted when it is asked for, as it is on others.
s/return stream == CU_STREAM_PER_THREAD \|\| /return /
