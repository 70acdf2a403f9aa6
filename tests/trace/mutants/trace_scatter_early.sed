# The stream is said to have come to the call when the call has been enqueued.
s/(    slr_timing_mark\(c->ring.timing, SLR_LANE_APP, call->stream\);\n)(    enum slr_status status = go\(call, &s\);\n)/\2\1/
