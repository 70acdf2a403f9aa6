# The call may be on any stream.
s/ \&\& \(here \|\| there\)//
