# A launch does not wait until the slots that were filled outside of graphs have been read.
s/    if \(!ring->staged\)/    if (true)/
