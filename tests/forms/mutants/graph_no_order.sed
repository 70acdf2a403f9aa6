# A launch does not wait for the communicator's calls before it.
s/    enum slr_status s = slr_order_before_gather\(c, stream\);/    enum slr_status s = SLR_OK;/
