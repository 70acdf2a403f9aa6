/* SPDX-License-Identifier: Apache-2.0 */
#include "lt_algo.h"

#include <string.h>

#define MAGIC 0x736f6674676d6d31u

static const struct {
    int multiple, least_k;
    uint32_t align, scheme, splits;
    size_t workspace; /* bytes for each element of D */
} kinds[LT_ALGOS] = {
    {1, 0, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0},
    {8, 0, 32, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0},
    {1, 32, 1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2, sizeof(float)},
};

cublasLtMatmulAlgo_t lt_algo_of(int id)
{
    return (cublasLtMatmulAlgo_t){.data = {MAGIC, (uint64_t)id}};
}

int lt_algo_id(const cublasLtMatmulAlgo_t *algo)
{
    return algo->data[0] == MAGIC && algo->data[1] < LT_ALGOS ? (int)algo->data[1] : -1;
}

int lt_algo_takes(int id, const struct gemm_args *g)
{
    int64_t by = kinds[id].multiple;
    return g->m % by == 0 && g->n % by == 0 && g->k % by == 0 && g->k >= kinds[id].least_k;
}

int lt_algo_aligned(int id, const uint32_t align[4])
{
    for (int i = 0; i < 4; i++)
        if (align[i] < kinds[id].align)
            return 0;
    return 1;
}

size_t lt_algo_workspace(int id, const struct gemm_args *g)
{
    return kinds[id].workspace * (size_t)g->m * (size_t)g->n * (size_t)g->batch;
}

int lt_algo_best(const struct gemm_args *g, const uint32_t align[4], size_t workspace, uint32_t schemes, int *ids,
                 int max)
{
    int count = 0;
    for (int id = LT_ALGOS - 1; id >= 0 && count < max; id--)
        if (lt_algo_takes(id, g) && lt_algo_aligned(id, align) && lt_algo_workspace(id, g) <= workspace &&
            !(kinds[id].scheme & ~schemes))
            ids[count++] = id;
    return count;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                        int requested, int ids[], int *returned)
{
    if (!lt_handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !ids || !returned)
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    if ((c != d || !gemm_types_supported(compute, scale, a, b, c)) &&
        !gemm_narrow_types_supported(compute, scale, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int id = 0; id < LT_ALGOS && id < requested; id++)
        ids[(*returned)++] = id;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo)
{
    if (!lt_handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || id < 0 || id >= LT_ALGOS)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((c != d || !gemm_types_supported(compute, scale, a, b, c)) &&
        !gemm_narrow_types_supported(compute, scale, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *algo = lt_algo_of(id);
    return CUBLAS_STATUS_SUCCESS;
}

/* Both attribute queries: values of 32 bits. */
static cublasStatus_t give(uint32_t value, void *buf, size_t size, size_t *wrote)
{
    if (size ? !buf || size != sizeof value : !wrote)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size)
        memcpy(buf, &value, sizeof value);
    if (wrote)
        *wrote = sizeof value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attr, void *buf, size_t size,
                                                 size_t *wrote)
{
    if (!algo || lt_algo_id(algo) < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
        return give(kinds[lt_algo_id(algo)].align, buf, size, wrote);
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK:
        return give(kinds[lt_algo_id(algo)].scheme, buf, size, wrote);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr, void *buf, size_t size,
                                                    size_t *wrote)
{
    if (!algo || lt_algo_id(algo) < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return give((uint32_t)lt_algo_id(algo), buf, size, wrote);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return give(kinds[lt_algo_id(algo)].splits, buf, size, wrote);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return give(kinds[lt_algo_id(algo)].scheme, buf, size, wrote);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}
