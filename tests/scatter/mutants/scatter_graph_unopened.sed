# A replay's parts do not wait for the peers' slots.
s/slr_memops_wait\(&m, op->word, before \+ op->at\)/slr_memops_wait(\&m, op->word, op->at ? 0 : before)/
