# A rank says nothing of the calls that it passes.
s/    uint64_t count = \(uint32_t\)\(atomic_fetch_add\(&c->passed_alone, calls\) \+ calls\);/    uint64_t count = atomic_load(\&c->passed_alone);/
