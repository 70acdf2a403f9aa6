# The last byte of what is sent stays behind.
s/(\+ part->at, part->bytes), ring->publish/\1 - 1, ring->publish/
