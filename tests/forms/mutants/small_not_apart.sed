# A gather that stays with NCCL overtakes the pending one whatever it touches.
s/return !c->records && !may_reach\(c\) && slr_extent_apart\(read, g, c->nranks\) &&/return may_reach(c) || g || read.begin + written.begin ||/
