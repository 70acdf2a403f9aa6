# A slow reader, correct all the same: each piece is copied many times. The base of early_done and skip_last_chunk.
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/for (int i = 0; i < 100; i++) SLR_TRY(\1);/
