# Ties go away from zero.
s/0xfffu \+ \(size >> 13 \& 1\)/0x1000u/
s/0x7fffu \+ \(u >> 16 \& 1\)/0x8000u/
