# A gather does not end what a GEMM has begun.
s/    slr_product_operation\(c->shared\.ctx\);\n//
