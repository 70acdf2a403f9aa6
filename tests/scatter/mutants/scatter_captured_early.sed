# A captured result is written while the GEMM uses what lies there.
s/if \(p \&\& !slr_scatter_may_write\(p, call\)\)/if (false)/
