# Those of earlier operations, likewise.
s/s = note_late\(&c->order->gather\)/s = SLR_OK/
