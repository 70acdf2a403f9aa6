# It is told, and nothing is released.
s/(c->told_in_call = true;\n)        atomic_store\(&c->app_informed, true\);\n/\1/
s/in == SLR_IN_CALL_HELD/false/
