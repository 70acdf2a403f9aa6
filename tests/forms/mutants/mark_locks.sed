# What overtakes is marked under the communicator's lock.
s/    if \(op->overtakes && !op->gemm && slr_pending_may_observe\(op->stream\)\)/    if (false)/
