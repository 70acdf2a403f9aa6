/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse_narrow.h"

#define SET(desc, id, value)                                                                                           \
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##id, &(value), sizeof(value)))

static int32_t mode_of(enum scaling scaling)
{
    static const int32_t modes[] = {[ROWS] = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                                    [LINES] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                                    [SQUARES] = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                                    [TILES] = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0};
    return modes[scaling];
}

static cublasLtMatmulDesc_t operation(const struct narrow_case *c, const struct shape *s, const struct memory *mem,
                                      const struct output *o)
{
    cublasLtMatmulDesc_t d;
    const int32_t trans = CUBLAS_OP_T, on_device = CUBLASLT_POINTER_MODE_DEVICE, bf16 = BF16;
    const int32_t mx = mode_of(c->scaling), mw = mode_of(of_w(c->scaling));
    const int8_t fast = 1;
    BLAS(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (!s->sums)
        SET(d, TRANSA, trans);
    if (c->alpha_on_device)
        SET(d, POINTER_MODE, on_device);
    if (c->fast)
        SET(d, FAST_ACCUM, fast);
    if (c->scaling != NONE) {
        BLAS(cublasLtMatmulDescSetAttribute(
            d, s->on_a ? CUBLASLT_MATMUL_DESC_A_SCALE_POINTER : CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &mem->sx, 8));
        BLAS(cublasLtMatmulDescSetAttribute(
            d, s->on_a ? CUBLASLT_MATMUL_DESC_B_SCALE_POINTER : CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &mem->sw, 8));
        SET(d, A_SCALE_MODE, *(s->on_a ? &mx : &mw));
        SET(d, B_SCALE_MODE, *(s->on_a ? &mw : &mx));
    }
    if (c->d_scale)
        SET(d, D_SCALE_POINTER, mem->sd);
    if (c->amax)
        SET(d, AMAX_D_POINTER, o->amax);
    if (c->epilogue)
        SET(d, EPILOGUE, c->epilogue);
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        SET(d, BIAS_POINTER, mem->bias);
    if (c->epilogue & (16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB))
        SET(d, BIAS_POINTER, o->vector);
    if (narrow(c))
        SET(d, BIAS_DATA_TYPE, bf16);
    if (c->epilogue & 128) {
        SET(d, EPILOGUE_AUX_POINTER, o->aux);
        SET(d, EPILOGUE_AUX_LD, s->aux_ld);
    }
    return d;
}

static cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t cols)
{
    cublasLtMatrixLayout_t l;
    BLAS(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)cols, rows));
    return l;
}

void matmul(const struct narrow_case *c, const struct shape *s, const struct memory *mem, cublasLtHandle_t h,
            const struct output *o, cudaStream_t stream)
{
    const float one = 1, beta = (float)c->beta, *scalars = (const float *)mem->scalars;
    const int64_t rows_a = s->sums ? s->m : s->inner, cols_a = s->sums ? s->inner : s->m;
    cublasLtMatmulDesc_t op = operation(c, s, mem, o);
    cublasLtMatrixLayout_t la = layout(s->on_a ? c->x : c->w, rows_a, cols_a),
                           lb = layout(s->on_a ? c->w : c->x, s->inner, s->n), lc = layout(s->c, s->m, s->n),
                           ld = layout(c->d, s->m, s->n);
    cublasLtMatmulHeuristicResult_t found = {.workspaceSize = 0};
    const size_t space = c->asked ? WORKSPACE : 0;
    if (c->asked) {
        cublasLtMatmulPreference_t pref;
        int count = 0;
        BLAS(cublasLtMatmulPreferenceCreate(&pref));
        BLAS(
            cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space));
        BLAS(cublasLtMatmulAlgoGetHeuristic(h, op, la, lb, lc, ld, pref, 1, &found, &count));
        CHECK(count == 1, "%s: no algorithm", c->name);
        BLAS(cublasLtMatmulPreferenceDestroy(pref));
    }
    BLAS(cublasLtMatmul(h, op, c->alpha_on_device ? scalars : &one, s->on_a ? mem->recv : mem->w, la,
                        s->on_a ? mem->w : mem->recv, lb, c->alpha_on_device ? scalars + 1 : &beta,
                        s->sums || c->c_is_d ? o->d : mem->c, lc, o->d, ld, c->asked ? &found.algo : NULL,
                        space ? mem->workspace : NULL, space, stream));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatrixLayoutDestroy(ld));
    BLAS(cublasLtMatmulDescDestroy(op));
}
