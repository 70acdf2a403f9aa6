# A rank tells its peers of the calls that it leaves, and does not count them itself.
s/\(atomic_fetch_add\(&c->left, calls\) \+ calls\)/(calls + (uint32_t)(atomic_load(\&own->left) >> 32))/
