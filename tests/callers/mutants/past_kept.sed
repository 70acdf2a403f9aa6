# Freed blocks are kept.
s/!slr_reach_past\(\) && \(mode/(mode/
s/const bool past = slr_reach_past\(\);/const bool past = false;/
