# What a blocking stream waits for is not looked at.
s/ \|\|\n           \(!p->stream \&\& w->blocking\);/;/
