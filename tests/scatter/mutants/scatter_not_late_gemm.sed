# A gather that the GEMM overtakes is not waited for.
s/    p->late = late;/    p->late = false; (void)late;/
