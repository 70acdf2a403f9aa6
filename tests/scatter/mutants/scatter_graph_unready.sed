# A replay's sums do not wait for the parts of the peers.
s/slr_memops_wait64\(\&m, op->word, slr_ready_value\(upto, 0\)\)/slr_memops_wait64(\&m, op->word, slr_ready_value(before, 0))/
