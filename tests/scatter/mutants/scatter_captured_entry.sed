# In a graph the result is written before the call's stream has come to it.
s/    if \(p\)\n(        SLR_TRY\(slr_scatter_mark_entry)/    if (0)\n\1/
