# What a GEMM reads besides its matrices is not looked at.
s/touches = touches \|\| overlap\(gemm->read\[i\], recv\);/touches = touches || (i == 0 \&\& overlap(gemm->read[i], recv));/
