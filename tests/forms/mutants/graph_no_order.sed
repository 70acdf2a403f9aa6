# A launch does not wait for the communicator's calls before it.
s/        s = slr_order_before_gather\(c, replay->stream\);/        s = SLR_OK;/
