# What was loaded in part stays.
s/if \(s != SLR_OK\)\n        slr_reduce_unload\(r\);//
