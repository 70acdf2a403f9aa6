# Gathers stay pending beside an object that bypasses slipring.
s/const bool bypassed = slr_reach_doubtful\(\);/const bool bypassed = false;/
