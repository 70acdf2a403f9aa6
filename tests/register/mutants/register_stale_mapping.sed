# Unmapping memory does not end what is known of it.
s/if \(slr_block_usable\(\)\)\n *end_range\(p, bytes\);/(void)p;/
