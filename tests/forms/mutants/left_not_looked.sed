# The watchdog does not look at what the peers have passed.
s/    if \(published != 0 && /    if (published == 1 \&\& /
