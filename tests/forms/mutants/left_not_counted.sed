# A rank says nothing of the calls that it passes.
s/\(uint64_t\)count << 32/(uint64_t)before << 32/
