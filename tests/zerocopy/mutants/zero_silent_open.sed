# A peer does not say that it is opening a block.
s/atomic_store\(ack, generation \| SLR_ACK_OPENING\);//
