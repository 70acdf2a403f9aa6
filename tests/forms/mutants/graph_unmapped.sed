# A call with new buffers does not wait until a peer that replays can map them.
s/!slr_record_memory_await\(c, &g, mixed\)/(mixed \&\& c->put)/
