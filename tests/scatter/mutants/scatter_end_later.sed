# A GEMM may leave a product for a communicator that is being destroyed.
s/    if \(!p->comm->unproductive\)\n        put_on/    put_on/
