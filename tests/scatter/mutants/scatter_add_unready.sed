# The sum does not wait for its parts.
s/        if \(r != ring->rank\)\n            slr_memops_await_ready/        if (r < 0)\n            slr_memops_await_ready/
