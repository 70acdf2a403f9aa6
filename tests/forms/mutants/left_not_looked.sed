# The watchdog does not look at what the peers have left.
s/    if \(posted != 0 && /    if (posted == 1 \&\& /
