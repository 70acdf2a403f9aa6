# A GEMM that reads C runs whole over what its parts have written.
s/if \(!slr_gemm_reads_output\(gemm\)\)/if (true)/
