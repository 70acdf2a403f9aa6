# Parts write where the own shard was without waiting until it has moved out of there.
s/if \(g->vacated && await_vacated\(/if (false \&\& await_vacated(/
