# A gather that a thread's default stream captures is left open to what other threads put on theirs.
s/ && x->call\.stream == CU_STREAM_PER_THREAD\)/ \&\& false)/
