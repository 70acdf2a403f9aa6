# An operation on a stream is not looked at.
s/        drop\(context_of\(slr_stream_name\(stream, per_thread\)\)\);/        (void)stream, (void)per_thread;/
