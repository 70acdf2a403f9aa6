/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's descriptors: create, destroy, and one table of attributes for each. */
#include "blas_types.h"

#include <stdlib.h>
#include <string.h>

struct attr {
    int id;
    size_t offset, size;
};
#define ATTR(id, type, field)                                                                                          \
    {                                                                                                                  \
        id, offsetof(struct type, field), sizeof(((struct type *)0)->field)                                            \
    }

static const struct attr layout_attrs[] = {
    ATTR(CUBLASLT_MATRIX_LAYOUT_TYPE, lt_layout, type),
    ATTR(CUBLASLT_MATRIX_LAYOUT_ORDER, lt_layout, order),
    ATTR(CUBLASLT_MATRIX_LAYOUT_ROWS, lt_layout, rows),
    ATTR(CUBLASLT_MATRIX_LAYOUT_COLS, lt_layout, cols),
    ATTR(CUBLASLT_MATRIX_LAYOUT_LD, lt_layout, ld),
    ATTR(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, lt_layout, batch),
    ATTR(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, lt_layout, stride),
    ATTR(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, lt_layout, plane),
    ATTR(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, lt_layout, batch_mode),
    {-1, 0, 0},
};

static const struct attr desc_attrs[] = {
    ATTR(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, lt_desc, compute),
    ATTR(CUBLASLT_MATMUL_DESC_SCALE_TYPE, lt_desc, scale),
    ATTR(CUBLASLT_MATMUL_DESC_POINTER_MODE, lt_desc, pointer_mode),
    ATTR(CUBLASLT_MATMUL_DESC_TRANSA, lt_desc, transa),
    ATTR(CUBLASLT_MATMUL_DESC_TRANSB, lt_desc, transb),
    ATTR(CUBLASLT_MATMUL_DESC_TRANSC, lt_desc, transc),
    ATTR(CUBLASLT_MATMUL_DESC_FILL_MODE, lt_desc, fill),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE, lt_desc, epilogue),
    ATTR(CUBLASLT_MATMUL_DESC_BIAS_POINTER, lt_desc, bias),
    ATTR(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, lt_desc, bias_stride),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, lt_desc, aux),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, lt_desc, aux_ld),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, lt_desc, aux_stride),
    ATTR(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, lt_desc, alpha_stride),
    ATTR(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, lt_desc, sm_target),
    ATTR(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, lt_desc, scale_ptr[0]),
    ATTR(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, lt_desc, scale_ptr[1]),
    ATTR(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, lt_desc, scale_ptr[2]),
    ATTR(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, lt_desc, scale_ptr[3]),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, lt_desc, scale_ptr[4]),
    ATTR(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, lt_desc, scale_ptr[5]),
    ATTR(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, lt_desc, amax_d),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER, lt_desc, amax_aux),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, lt_desc, aux_type),
    ATTR(CUBLASLT_MATMUL_DESC_FAST_ACCUM, lt_desc, fast_accum),
    ATTR(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, lt_desc, bias_type),
    ATTR(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, lt_desc, scale_mode[0]),
    ATTR(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, lt_desc, scale_mode[1]),
    ATTR(CUBLASLT_MATMUL_DESC_C_SCALE_MODE, lt_desc, scale_mode[2]),
    ATTR(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, lt_desc, scale_mode[3]),
    ATTR(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE, lt_desc, scale_mode[4]),
    ATTR(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, lt_desc, scale_mode[5]),
    ATTR(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, lt_desc, emulation),
    {-1, 0, 0},
};

static const struct attr pref_attrs[] = {
    ATTR(CUBLASLT_MATMUL_PREF_SEARCH_MODE, lt_pref, search),
    ATTR(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, lt_pref, max_workspace),
    ATTR(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, lt_pref, reduction_mask),
    ATTR(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, lt_pref, align[0]),
    ATTR(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, lt_pref, align[1]),
    ATTR(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, lt_pref, align[2]),
    ATTR(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, lt_pref, align[3]),
    ATTR(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, lt_pref, max_waves),
    ATTR(CUBLASLT_MATMUL_PREF_IMPL_MASK, lt_pref, impl_mask),
    {-1, 0, 0},
};

static cublasStatus_t attr_set(const struct attr *table, void *obj, int id, const void *buf, size_t size)
{
    for (; table->id >= 0; table++) {
        if (table->id != id)
            continue;
        if (!obj || !buf || size != table->size)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy((char *)obj + table->offset, buf, size);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t attr_get(const struct attr *table, const void *obj, int id, void *buf, size_t size, size_t *wrote)
{
    for (; table->id >= 0; table++) {
        if (table->id != id)
            continue;
        if (!obj || (size ? !buf || size != table->size : !wrote))
            return CUBLAS_STATUS_INVALID_VALUE;
        if (size)
            memcpy(buf, (const char *)obj + table->offset, size);
        if (wrote)
            *wrote = table->size;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t opaque_new(void **out, size_t size)
{
    if (!out)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = calloc(1, size);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
    if (!layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof *layout)
        return CUBLAS_STATUS_ALLOC_FAILED;
    struct lt_layout l = {.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1, .order = CUBLASLT_ORDER_COL};
    memset(layout, 0, sizeof *layout);
    memcpy(layout, &l, sizeof l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    cublasStatus_t st = opaque_new((void **)layout, sizeof **layout);
    return st ? st : cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attr,
                                                const void *buf, size_t size)
{
    return attr_set(layout_attrs, layout, attr, buf, size);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attr,
                                                void *buf, size_t size, size_t *wrote)
{
    return attr_get(layout_attrs, layout, attr, buf, size, wrote);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof *desc)
        return CUBLAS_STATUS_ALLOC_FAILED;
    struct lt_desc d = {.compute = compute,
                        .scale = scale,
                        .fill = CUBLAS_FILL_MODE_FULL,
                        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                        .aux_type = -1,
                        .bias_type = -1};
    memset(desc, 0, sizeof *desc);
    memcpy(desc, &d, sizeof d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    cublasStatus_t st = opaque_new((void **)desc, sizeof **desc);
    return st ? st : cublasLtMatmulDescInit_internal(*desc, sizeof **desc, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr,
                                              const void *buf, size_t size)
{
    return attr_set(desc_attrs, desc, attr, buf, size);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr, void *buf,
                                              size_t size, size_t *wrote)
{
    return attr_get(desc_attrs, desc, attr, buf, size, wrote);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size)
{
    if (!pref)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (size < sizeof *pref)
        return CUBLAS_STATUS_ALLOC_FAILED;
    struct lt_pref p = {
        .reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK, .impl_mask = UINT64_MAX, .align = {256, 256, 256, 256}};
    memset(pref, 0, sizeof *pref);
    memcpy(pref, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    cublasStatus_t st = opaque_new((void **)pref, sizeof **pref);
    return st ? st : cublasLtMatmulPreferenceInit_internal(*pref, sizeof **pref);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    free(pref);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
                                                    size_t size)
{
    return attr_set(pref_attrs, pref, attr, buf, size);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, void *buf, size_t size,
                                                    size_t *wrote)
{
    return attr_get(pref_attrs, pref, attr, buf, size, wrote);
}
