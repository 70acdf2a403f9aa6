# The deferred join enqueues nothing.
s/SLR_TRY\(\(exposed \? slr_ring_join_measured[^;]*;//
