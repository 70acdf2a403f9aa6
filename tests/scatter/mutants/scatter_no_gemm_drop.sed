# A GEMM does not end what another one has begun.
s/    if \(!produced\) \/\* behind it/    if (0) \/* behind it/
