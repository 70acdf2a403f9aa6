# Operations of the communicator on other streams are not waited for.
s/    return !slr_order_elsewhere\(call->comm, slr_stream_name\(call->stream, false\)\);/    return call != NULL;/
