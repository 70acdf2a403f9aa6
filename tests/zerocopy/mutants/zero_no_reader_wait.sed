# A gather that is read in place is over for its sender before the readers have read. They are slow, so that it always shows.
s/SLR_TRY\(for_peers\(ring, g, zero_copy, false,[^;]*;/;/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < (route \&\& route->source == SLR_FROM_PLACE ? 100 : 1); i++) SLR_TRY(\1);/
