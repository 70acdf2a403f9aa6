# Where an emulated product tells its bits is not asked.
s/if \(!tells_bits\(gemm\)\)/if (true || !tells_bits(gemm))/
