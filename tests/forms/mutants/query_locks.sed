# A query joins what its stream holds, and waits for the lock of whoever waits in the driver.
s/        busy = shows_gather\(op\.stream\);/        slr_pending_join_observed(\&op);/
