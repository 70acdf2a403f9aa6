# Nor does what waits for a context that is not current.
s/atomic_store\(&c->pending->shown, true\);/atomic_store(\&c->pending->shown, false);/
