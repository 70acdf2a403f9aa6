# A query that says ready leaves no trace.
s/atomic_store\(&c->pending->shown, true\);/atomic_store(\&c->pending->shown, false);/
