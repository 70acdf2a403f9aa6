# A gather into what the GEMM writes, which another stream holds, is not looked for.
s/ \&\& may_produce\(gemm\)//
