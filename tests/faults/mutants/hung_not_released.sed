# It is told, and nothing is released.
s/(c->told_in_gemm = true;\n)        atomic_store\(&c->app_informed, true\);\n/\1/
s/in == SLR_IN_GEMM_HELD/false/
