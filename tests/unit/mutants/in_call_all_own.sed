# A communicator tells the calls of all.
s/atomic_load_explicit\(&e->own, memory_order_relaxed\) != c/!c/
