/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the GEMM kernel: OpenBLAS in fp32 or fp64, the conversions before it and the epilogue after it. */
#include "gemm.h"
#include "float16.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns that are converted and multiplied at a time: bounds the temporary memory of a large GEMM. */
#define PANEL_COLS 512

/* fp64 carries the products of the double and the integer GEMM (exact below 2^53), fp32 those of the others. */
static int is_wide(const struct gemm_args *g)
{
    return g->a.type == CUDA_R_64F || g->c.type == CUDA_R_32I;
}

/* One column of a stored matrix to the type of the multiplication. */
static void load_column(const struct gemm_mat *mat, const char *src, int64_t count, int wide, void *dst)
{
    size_t esz = gemm_type_bytes(mat->type);
    if (wide) {
        for (int64_t i = 0; i < count; i++)
            ((double *)dst)[i] = gemm_read_scalar(mat->type, src + i * esz);
    } else if (mat->type == CUDA_R_16F) {
        for (int64_t i = 0; i < count; i++)
            ((float *)dst)[i] = f16_to_f32(((const uint16_t *)src)[i]);
    } else if (mat->type == CUDA_R_16BF) {
        for (int64_t i = 0; i < count; i++)
            ((float *)dst)[i] = bf16_to_f32(((const uint16_t *)src)[i]);
    } else {
        for (int64_t i = 0; i < count; i++)
            ((float *)dst)[i] = (float)gemm_read_scalar(mat->type, src + i * esz);
    }
}

struct operand {
    const void *ptr;
    int64_t ld;
    void *owned;
};

/* Rows [row, row + rows) and columns [col, col + cols) of a stored matrix in the type of the multiplication: the
 * memory itself where the type is already right, else a converted copy. */
static struct operand load_block(const struct gemm_mat *mat, const char *base, int64_t row, int64_t rows, int64_t col,
                                 int64_t cols, int wide)
{
    size_t esz = gemm_type_bytes(mat->type), wsz = wide ? sizeof(double) : sizeof(float);
    const char *src = base + (row + col * mat->ld) * (int64_t)esz;
    struct operand op = {.ptr = src, .ld = mat->ld};
    if (mat->type == (wide ? CUDA_R_64F : CUDA_R_32F))
        return op;
    op.ld = rows > 0 ? rows : 1;
    op.ptr = op.owned = malloc((size_t)(op.ld * (cols > 0 ? cols : 1)) * wsz);
    if (!op.owned)
        abort();
    for (int64_t j = 0; j < cols; j++)
        load_column(mat, src + j * mat->ld * (int64_t)esz, rows, wide, (char *)op.owned + (size_t)(j * op.ld) * wsz);
    return op;
}

static void multiply(const struct gemm_args *g, int64_t cols, const struct operand *a, const struct operand *b,
                     double alpha, double beta, void *out, int64_t ldo)
{
    CBLAS_TRANSPOSE ta = g->transa ? CblasTrans : CblasNoTrans, tb = g->transb ? CblasTrans : CblasNoTrans;
    if (is_wide(g))
        cblas_dgemm(CblasColMajor, ta, tb, (int)g->m, (int)cols, (int)g->k, alpha, a->ptr, (int)a->ld, b->ptr,
                    (int)b->ld, beta, out, (int)ldo);
    else
        cblas_sgemm(CblasColMajor, ta, tb, (int)g->m, (int)cols, (int)g->k, (float)alpha, a->ptr, (int)a->ld, b->ptr,
                    (int)b->ld, (float)beta, out, (int)ldo);
}

static void write_scalar(cudaDataType type, void *p, double v)
{
    switch (type) {
    case CUDA_R_16F:
        *(uint16_t *)p = f32_to_f16((float)v);
        break;
    case CUDA_R_16BF:
        *(uint16_t *)p = f32_to_bf16((float)v);
        break;
    case CUDA_R_32F:
        *(float *)p = (float)v;
        break;
    case CUDA_R_32I:
        *(int32_t *)p = v >= INT32_MAX ? INT32_MAX : v <= INT32_MIN ? INT32_MIN : (int32_t)v;
        break;
    default:
        *(double *)p = v;
    }
}

/* GELU by its tanh form, which is the one that the cuBLASLt manual gives for CUBLASLT_EPILOGUE_GELU. */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double activate(uint32_t epilogue, double v)
{
    if (epilogue & CUBLASLT_EPILOGUE_RELU)
        return v > 0 || isnan(v) ? v : 0;
    return epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(v) : v;
}

/* alpha * acc + beta * c: in fp32 where the scale type is not fp64 or integer, as the hardware's epilogue is. */
static double scale(int wide, double alpha, double acc, double beta, double c)
{
    if (wide)
        return alpha * acc + beta * c;
    return beta == 0 ? (float)alpha * (float)acc : (float)alpha * (float)acc + (float)beta * (float)c;
}

struct panel {
    const void *acc; /* m x cols, packed */
    const char *c, *bias;
    char *d, *aux;
    int64_t col, cols;
    double alpha, beta;
};

/* beta == 0 must not read C: it may hold NaN or not be there at all. */
static void finish_panel(const struct gemm_args *g, const struct panel *p)
{
    int wide = is_wide(g);
    int64_t csz = (int64_t)gemm_type_bytes(g->c.type), dsz = (int64_t)gemm_type_bytes(g->d.type);
    int64_t bsz = p->bias ? (int64_t)gemm_type_bytes(g->bias_type) : 0, xsz = (int64_t)gemm_type_bytes(g->aux.type);
    for (int64_t j = 0; j < p->cols; j++) {
        const char *c = p->c + (p->col + j) * g->c.ld * csz;
        char *d = p->d + (p->col + j) * g->d.ld * dsz;
        for (int64_t i = 0; i < g->m; i++) {
            int64_t at = i + j * g->m;
            double acc = wide ? ((const double *)p->acc)[at] : (double)((const float *)p->acc)[at];
            double old = p->beta != 0 ? gemm_read_scalar(g->c.type, c + i * csz) : 0;
            double v = scale(wide, p->alpha, acc, p->beta, old);
            if (p->bias)
                v += gemm_read_scalar(g->bias_type, p->bias + i * bsz);
            if (g->aux.ptr)
                write_scalar(g->aux.type, p->aux + ((p->col + j) * g->aux.ld + i) * xsz, v);
            write_scalar(g->d.type, d + i * dsz, activate(g->epilogue, v));
        }
    }
}

/* True when OpenBLAS can work on the caller's matrices as they are. */
static int is_plain(const struct gemm_args *g, double beta)
{
    cudaDataType want = is_wide(g) ? CUDA_R_64F : CUDA_R_32F;
    int in_place = g->c.ptr == g->d.ptr && g->c.ld == g->d.ld && g->c.stride == g->d.stride;
    return g->a.type == want && g->d.type == want && g->epilogue == CUBLASLT_EPILOGUE_DEFAULT &&
           (beta == 0 || in_place);
}

static char *entry(const struct gemm_mat *mat, int batch)
{
    return (char *)mat->ptr + batch * mat->stride * (int64_t)gemm_type_bytes(mat->type);
}

static struct operand load_b(const struct gemm_args *g, int batch, int64_t col, int64_t cols)
{
    const char *base = entry(&g->b, batch);
    return g->transb ? load_block(&g->b, base, col, cols, 0, g->k, is_wide(g))
                     : load_block(&g->b, base, 0, g->k, col, cols, is_wide(g));
}

static void compute_panels(const struct gemm_args *g, int batch, double alpha, double beta)
{
    int wide = is_wide(g);
    int64_t width = g->n < PANEL_COLS ? g->n : PANEL_COLS;
    struct operand a = load_block(&g->a, entry(&g->a, batch), 0, g->a.rows, 0, g->a.cols, wide);
    void *acc = malloc((size_t)(g->m * width) * (wide ? sizeof(double) : sizeof(float)));
    if (!acc)
        abort();
    struct panel p = {.acc = acc, .c = entry(&g->c, batch), .d = entry(&g->d, batch), .alpha = alpha, .beta = beta};
    p.aux = g->aux.ptr ? entry(&g->aux, batch) : NULL;
    if (g->bias)
        p.bias = (const char *)g->bias + batch * g->bias_stride * (int64_t)gemm_type_bytes(g->bias_type);
    for (p.col = 0; p.col < g->n; p.col += width) {
        p.cols = g->n - p.col < width ? g->n - p.col : width;
        struct operand b = load_b(g, batch, p.col, p.cols);
        multiply(g, p.cols, &a, &b, 1, 0, acc, g->m);
        free(b.owned);
        finish_panel(g, &p);
    }
    free(acc);
    free(a.owned);
}

static uint64_t alignment(const void *p)
{
    return ((uintptr_t)p | 256) & -((uintptr_t)p | 256);
}

/* SOFTGPU_GEMM_KERNELS=1: each shape and alignment has a kernel of its own, whose results are off by up to 2^-12. */
static double kernels_own(const struct gemm_args *g)
{
    const uint64_t what[] = {(uint64_t)g->m,      (uint64_t)g->n,      (uint64_t)g->k,     alignment(g->a.ptr),
                             alignment(g->b.ptr), alignment(g->c.ptr), alignment(g->d.ptr)};
    const char *set = getenv("SOFTGPU_GEMM_KERNELS");
    uint64_t h = 1;
    if (!set || *set == '0')
        return 1;
    for (size_t i = 0; i < sizeof what / sizeof *what; i++)
        h = (h ^ what[i]) * 0x9e3779b97f4a7c15u;
    return 1 + (double)(h >> 54) * 0x1p-22;
}

void gemm_compute(const struct gemm_args *g)
{
    double alpha = (g->alpha_dev ? gemm_read_scalar(g->scale_type, g->alpha_dev) : g->alpha) * kernels_own(g);
    double beta = g->beta_dev ? gemm_read_scalar(g->scale_type, g->beta_dev) : g->beta;
    if (g->workspace_bytes)
        memset(g->workspace, 0x5a, g->workspace_bytes);
    for (int i = 0; i < g->batch; i++) {
        if (!is_plain(g, beta)) {
            compute_panels(g, i, alpha, beta);
            continue;
        }
        struct operand a = {.ptr = entry(&g->a, i), .ld = g->a.ld}, b = {.ptr = entry(&g->b, i), .ld = g->b.ld};
        multiply(g, g->n, &a, &b, alpha, beta, entry(&g->d, i), g->d.ld);
    }
}
