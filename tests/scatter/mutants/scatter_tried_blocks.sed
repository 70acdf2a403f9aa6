# All ways have one block a shard.
s/    return 1u << \(way - SLR_WAY_PARTS\);/    return 1u;/
