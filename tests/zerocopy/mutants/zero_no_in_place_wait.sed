# A gather that is read in place is over for its sender before the readers have read.
s/SLR_TRY\(for_peers\(ring, c, in_place, false,[^;]*;/;/
