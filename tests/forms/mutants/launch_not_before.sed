# The ring does not wait for a launch with NCCL's operations.
s/        slr_order_after_nccl\(c/        if (!c) slr_order_after_nccl(c/
