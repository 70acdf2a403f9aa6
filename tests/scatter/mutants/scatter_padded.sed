# A padded C is taken for shards of whole columns.
s/           gemm->ldc == gemm->m \&\& /           /
