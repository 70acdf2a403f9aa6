# Calls whose record a GEMM has begun are not counted.
s/(    m->number = call->number;\n)    atomic_fetch_add_explicit\(&timeline->sampled, 1, memory_order_relaxed\);\n/\1/
