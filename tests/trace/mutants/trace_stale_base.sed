# The host's time of a new base is that of the first one.
s/    clock->base_ns = at;/    clock->base_ns = clock->known ? clock->base_ns : at;/
