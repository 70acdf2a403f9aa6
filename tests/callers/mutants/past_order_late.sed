# Events behind operations are recorded when they are asked for.
s/CU_STREAM_PER_THREAD \|\| slr_reach_doubtful\(\)/CU_STREAM_PER_THREAD/
