# What a GEMM has left still leads to a communicator that is being destroyed.
s/    slr_product_end\(c\);\n//
