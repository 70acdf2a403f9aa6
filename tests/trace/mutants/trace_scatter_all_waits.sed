# The ring's waits before the first part count as the reduce-scatter's.
s/\(stands \|\| s->kind == SLR_SPAN_PUSH\) && begin < r->begin/(stands || s->lane != SLR_LANE_APP) \&\& begin < r->begin/
