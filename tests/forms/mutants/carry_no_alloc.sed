# An allocation on a stream behind an event that carries a gather joins nothing, so that later events do not come after it.
s/if \(c->pending->carried && is_origin\(c, place\)\)/if (false)/
