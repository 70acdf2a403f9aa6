# What holds the context stays.
s/(c->told_in_turn = true;\n)        atomic_store\(&c->app_informed, true\);\n/\1/
s/\n    if \(since >= SLR_IN_CALL_HELD_MS\)\n        slr_comm_release\(c\);//
s/\n    look_in_call\(c\);/\n    (void)look_in_call;/
