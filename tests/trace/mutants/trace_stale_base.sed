# The host's time of a new base is that of the first one.
s/    k->base_ns = at;/    k->base_ns = k->known ? k->base_ns : at;/
