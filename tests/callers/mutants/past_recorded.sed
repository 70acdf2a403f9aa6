# A captured gather is left to be joined by what comes.
s/&& slr_reach_doubtful\(\)/\&\& false/
