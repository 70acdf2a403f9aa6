# What is exported stays so.
s/!ring \|\| slr_reach_doubtful\(\)/!ring/
