# Averages are sums.
s/call->op == ncclAvg \? \(float\)c->nranks : 1\.0f/1.0f/
