# What comes after a launch does not wait for it.
s/SLR_TRY\(slr_ring_launched\(&c->ring, c->ring.entry\)\);/;/
s/return slr_order_after_gather\(c, stream\);/return SLR_OK;/
