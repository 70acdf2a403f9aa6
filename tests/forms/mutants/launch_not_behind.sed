# A launch with NCCL's operations does not wait for the ring's gathers before it.
s/        slr_order_before_nccl\(c/        if (!c) slr_order_before_nccl(c/
