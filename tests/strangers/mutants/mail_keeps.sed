# What came with a message that is dropped stays open.
s/    else\n            drop\(&inbox\[letters\]\);//;s/(letters\+\+;\n) *else\n *drop\(&inbox\[letters\]\);/\1/
