# A rank that is far ahead skips descriptors that a peer which replays can not.
s/!c->skips && !slr_transfer_await\(call, true\)/!c->skips \&\& c->put/
