# A rank tells its peers of the calls that it passes, and does not count them itself.
s/uint32_t before = atomic_load\(&c->passed_alone\)/uint32_t before = (uint32_t)(atomic_load(\&own->passed_alone) >> 32)/
s/    atomic_store\(&c->passed_alone, count\);//
