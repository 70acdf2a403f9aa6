# Every operation is taken for a sum.
s/ && \(call->op == ncclSum \|\| call->op == ncclAvg\)//
