# What came with a message that is dropped stays open.
s/    else\n            drop\(&queue\[queued\]\);//;s/(queued\+\+;\n) *else\n *drop\(&queue\[queued\]\);/\1/
