/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#define SET(desc, id, value)                                                                                           \
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##id, &(value), sizeof(value)))

/* One of the operands. */
struct side {
    const void *at, *factors;
    bool e5m2;
};

static cublasLtMatmulDesc_t operation(const struct gemm *g, const struct side *a, const struct side *b)
{
    const int32_t trans = CUBLAS_OP_T, by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    cublasLtMatmulDesc_t op;
    BLAS(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    SET(op, TRANSA, trans);
    if (g->narrow == NO_FACTORS)
        return op;
    SET(op, A_SCALE_POINTER, a->factors);
    SET(op, B_SCALE_POINTER, b->factors);
    if (g->narrow == BY_ROW) {
        SET(op, A_SCALE_MODE, by_row);
        SET(op, B_SCALE_MODE, by_row);
    }
    return op;
}

static cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t columns)
{
    cublasLtMatrixLayout_t l;
    BLAS(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)columns, rows));
    return l;
}

static cudaDataType type_of(const struct side *side)
{
    return side->e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

cublasStatus_t narrow_status(struct player *p, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    const float one = 1, zero = 0;
    const struct side x = {p->buffer[op->from.buffer] + op->from.off, p->buffer[g->factors.buffer] + g->factors.off,
                           g->x_e5m2};
    const struct side w = {p->buffer[NARROW], p->buffer[FACTORS], g->w_e5m2};
    const struct side *a = g->x_is_b ? &w : &x, *b = g->x_is_b ? &x : &w;
    void *c = p->buffer[op->to.buffer] + op->to.off;
    cublasLtMatmulDesc_t desc = operation(g, a, b);
    cublasLtMatrixLayout_t la = layout(type_of(a), g->inner, g->m), lb = layout(type_of(b), g->inner, g->n),
                           lc = layout(CUDA_R_32F, g->m, g->n);
    void *workspace = g->scratch_bytes ? p->buffer[g->scratch.buffer] + g->scratch.off : NULL;
    const cublasStatus_t got = cublasLtMatmul(p->lt, desc, &one, a->at, la, b->at, lb, &zero, c, lc, c, lc, NULL,
                                              workspace, g->scratch_bytes, p->stream[op->stream]);
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatmulDescDestroy(desc));
    return got;
}
