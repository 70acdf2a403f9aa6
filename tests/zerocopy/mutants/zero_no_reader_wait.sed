# A gather that is read in place is over for its sender before the readers have read. They are slow, so that it always shows.
s/if \(reads_in_place\(slr_delivery_to\([^\n]*/if (0)/
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < (way == SLR_FROM_PLACE ? 100 : 1); i++) SLR_TRY(\1);/
