# A captured call is said to have no GEMM.
s/(slr_timeline_captured_scatter\(recorder, s.parts, )p != NULL\)/\1false)/
