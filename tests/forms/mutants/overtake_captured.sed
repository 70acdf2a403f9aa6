# A wait overtakes a gather also while something captures.
s/\(c && !follows\) \|\| !slr_nothing_captures\(\)/c \&\& !follows/
