# A pull does not wait for the owners behind the first one.
s/if \(step == 1 \|\| \(piece == 0/if (true || (piece == 0/; s/if \(step == 1 \|\| \(all/if (step == 1 || (false \&\& all/
