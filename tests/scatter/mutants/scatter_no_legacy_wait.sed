# What the legacy default stream waits for is not looked at.
s/ \|\| \(!w->stream \&\& p->blocking\)//
