# An allocation on a stream behind an event that carries a gather joins nothing, so that later events do not come after it.
s/return c->pending->carried \&\& is_origin\(c, place\);/return false;/
