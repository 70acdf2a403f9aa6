# An event that is recorded again still carries the gather of its record before.
s/(    bool done = false;\n    slr_guard\+\+;\n)    slr_pending_find\(forget, event\);\n/\1/
