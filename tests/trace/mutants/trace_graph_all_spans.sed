# Copies that a replay has switched off have spans.
s/(bool slr_recorded_runs\([^)]*\)\n\{\n)/\1    if (span)\n        return true;\n/
