# The peers of the own process are not looked for where they write.
s/c->ring\.twin \&\& slr_shared_same_process\(\&c->shared, r\) \? c->ring\.twin : //
