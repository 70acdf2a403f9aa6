# The last byte of every piece stays behind.
s/(SLR_CU\(cuMemcpyAsync,\s+to,\s+from,\s+slr_plan_piece_bytes\(&c->plan, piece\))/\1 - 1/
