# A wait overtakes a gather also while something captures.
s/\(c && follows == NO\) \|\| !slr_nothing_captures\(\)/c \&\& follows == NO/
