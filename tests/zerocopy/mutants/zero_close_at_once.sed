# A revoked block is closed although gathers that name it are still on their way.
s/c->offers\.enqueued >= atomic_load\(&e->last_call\)/1/
s/ && slr_ring_reached\(&c->ring, c->offers\.mapped[^;{]*\)\)\n/)\n/
