# A rank tells its peers of the calls that it passes, and does not count them itself.
s/\(atomic_fetch_add\(&c->passed_alone, calls\) \+ calls\)/(calls + (uint32_t)(atomic_load(\&own->passed_alone) >> 32))/
