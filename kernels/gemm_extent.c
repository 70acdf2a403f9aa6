/* SPDX-License-Identifier: Apache-2.0 */
/* Elements and matrices in memory. */
#include "kernels/gemm.h"

struct slr_extent slr_gemm_extent(const void *p, int64_t rows, int64_t cols, int64_t ld, size_t elem)
{
    const size_t bytes = rows && cols ? ((size_t)ld * (size_t)(cols - 1) + (size_t)rows) * elem : 0;
    return (struct slr_extent){(uintptr_t)p, (uintptr_t)p + bytes};
}

size_t slr_gemm_type_bytes(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    default:
        return 0;
    }
}
