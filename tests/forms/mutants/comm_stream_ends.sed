# Nothing is noted when the stream of an operation is destroyed.
s/under_lock\(comms\[i\], stream, stream_ends\);/comms[i]->order->several |= false;/
