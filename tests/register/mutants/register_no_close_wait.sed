# The end of a registration does not wait until the peers have closed the buffer.
s/if \(!await\(c, reg->generation, end, slr_exports_gone\)\)/if (0)/
