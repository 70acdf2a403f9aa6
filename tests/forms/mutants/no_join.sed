# The deferred join enqueues nothing.
s/s = \(exposed \? slr_ring_join_measured[^;]*;/s = SLR_OK;/
