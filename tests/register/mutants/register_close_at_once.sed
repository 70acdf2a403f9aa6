# A revoked block is closed although gathers that name it are still on their way.
s/c->exports->enqueued >= atomic_load\(&e->last_call\)/1/
s/return closing && slr_ring_reached\(&c->ring, until\);/return closing;/
