# An event behind a small gather that has overtaken the large one comes after what stood there before.
s/slr_ring_carry\(&c->ring, stream, h && h->moved_on\)/slr_ring_carry(\&c->ring, stream, false)/
