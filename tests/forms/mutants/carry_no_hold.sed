# A stream that takes a gather over is forgotten, and never joined.
s/    if \(s == SLR_OK && !slr_pending_holder\(c, stream\)\)\n        slr_pending_follow\(c, stream\);\n//
