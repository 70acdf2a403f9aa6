# All threads' default streams are one.
s/atomic_load\(&o->id\) == slr_stream_id_of\(stream\)/(atomic_load(\&o->id) == slr_stream_id_of(stream) || stream == CU_STREAM_PER_THREAD)/
