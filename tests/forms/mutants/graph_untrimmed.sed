# A launch has more nodes with words than gathers without a GEMM need.
s/recorded->parts \|\| !is_early/true || !is_early/
