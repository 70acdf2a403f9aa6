# A graph does not hold what is captured of NCCL's operations.
s/        slr_graph_hold\(/        if (!c) slr_graph_hold(/
