# It has the workspace of the GEMMs behind it.
s/ring->aside, ring->scratch, bytes_of\(given\)/ring->aside, given.begin, bytes_of(given)/
