# An event that is recorded again still carries the gather of its record before.
s/(bool slr_pending_record\([^{]*\{[^}]*)    forget\(event\);\n/\1/
