# A capture is not looked for.
s/ \|\| slr_stream_may_capture\(call->stream\);/;/
