# A gather that stays with NCCL overtakes the pending one whatever it touches.
s/return !c->records && slr_extent_apart\(read, g, c->nranks\) && slr_extent_apart\(written, g, c->nranks\);/return g \&\& read.begin + written.begin;/
