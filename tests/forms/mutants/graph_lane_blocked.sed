# A gather without a GEMM waits early for corrections: with one queue the peers' never come.
s/parts \? slr_ready_value\(last, way->source == SLR_FROM_EXPECTED\) : slr_ready_value\(before, 0\)/slr_ready_value(last, way->source == SLR_FROM_EXPECTED)/
