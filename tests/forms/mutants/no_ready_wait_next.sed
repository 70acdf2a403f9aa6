# A pull does not wait for the owners behind the first one.
s/if \(piece > 0 \|\| arrives\(route_of\(g, owner\)\)\)/if (piece > 9999)/; s/if \(step == 1 \|\| \(all/if (step == 1 || (false \&\& all/
