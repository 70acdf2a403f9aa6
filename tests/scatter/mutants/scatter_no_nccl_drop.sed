# An operation of NCCL does not end what a GEMM has begun.
s/    slr_product_on_stream\(\(CUstream\)stream, false\);\n//
