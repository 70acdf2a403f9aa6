# A replay's parts do not wait for the peers' slots.
s/(RECORDED_AWAITS:\s+)slr_memops_wait\(&m, op->word, upto\)/\1slr_memops_wait(\&m, op->word, op->at ? 0 : before)/
