# A group end joins nothing, and the gate does not look at what NCCL does in it.
s/slr_pending_join_stream\(group->uses\[i\]\.stream[^;]*;/(void)0;/
s/int outer = slr_program_begin\(\);/int outer = 0;/
