# Where a peer has taken a shard from a wrong place, it is not corrected.
s/way->delivery == SLR_CORRECTED && way->to_kind == node->kind \? way->to \+ node->at : 0;/0;/
