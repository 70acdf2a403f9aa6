# Blocks are exported as ever.
s/if \(slr_reach_doubtful\(\)\)\n *return false;//
s/const bool may = !slr_reach_doubtful\(\);/const bool may = true;/
s/!ring \|\| slr_reach_doubtful\(\)/!ring/
