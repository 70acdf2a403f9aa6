# A slow reader gives the slot back before it has copied the piece.
s/SLR_TRY\((SLR_CU\(cuMemcpyAsync,\s+to,[^;]*ring->pull\))\);/SLR_TRY(SLR_CU(cuStreamWriteValue32, ring->pull, slr_dflag(ring, SLR_FLAG_DONE, owner, ring->rank), seq, CU_STREAM_WRITE_VALUE_DEFAULT));\n    for (int i = 0; i < 400; i++) SLR_TRY(\1);/
