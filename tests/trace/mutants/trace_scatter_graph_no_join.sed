# Where the stream goes on is not stamped.
s/    slr_timing_did\(ring->timing, SLR_LANE_APP, call->stream, SLR_SPAN_WAIT, -1, -1, 0\);\n//
