# Scalars on the device are read before the gather has brought them.
s/ overlap\(extent_scalar\(gemm, gemm->(alpha|beta)\), recv\)/ false/g
