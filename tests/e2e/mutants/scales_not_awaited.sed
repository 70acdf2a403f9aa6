# What a GEMM reads besides its matrices is not looked at.
s/if \(overlap\(gemm->read\[i\], recv\)\)/if (i == 0 \&\& overlap(gemm->read[i], recv))/
