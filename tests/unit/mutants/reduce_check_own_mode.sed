# The thread's mode is used.
s/const uint64_t was = plain_arithmetic\(\);/const uint64_t was = 0x1f80;/
s/    own_arithmetic\(was\);//
