# A GEMM may leave a product for a communicator that is being destroyed.
s/ \&\& !p->comm->unproductive//
