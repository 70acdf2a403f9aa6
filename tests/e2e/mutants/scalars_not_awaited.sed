# Scalars on the device are read before the gather has brought them.
s/\(near\(gemm->(alpha|beta), recv\) && /(false \&\& /g
