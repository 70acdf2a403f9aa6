# An event that is recorded elsewhere is remembered.
s/    forget\(event\); \/\* this record/    \/* this record/
