# Averages are sums.
s/call->op == ncclAvg \? \(float\)call->comm->nranks : 1\.0f/1.0f/
