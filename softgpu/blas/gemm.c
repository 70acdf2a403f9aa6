/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the GEMM kernel: OpenBLAS in fp32 or fp64, the conversions before it. */
#include "gemm.h"
#include "float16.h"
#include "gemm_epilogue.h"
#include "gemm_scale.h"

#include <cblas.h>
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

/* Multiplies a converted block by its factors. `row` and `col` are its place in the stored matrix; `inner_rows`: the
 * inner dimension lies along its columns. */
static void scale_block(const struct gemm_args *g, int which, const struct operand *op, int64_t row, int64_t rows,
                        int64_t col, int64_t cols, int inner_rows)
{
    const int mode = g->scale[which].mode;
    if (!g->scale[which].at || mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
        mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
        return;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            ((float *)op->owned)[i + j * op->ld] *= inner_rows ? gemm_block_scale(g, which, col + j, row + i)
                                                               : gemm_block_scale(g, which, row + i, col + j);
}

static struct operand load_b(const struct gemm_args *g, int batch, int64_t col, int64_t cols)
{
    const char *base = entry(&g->b, batch);
    struct operand b = g->transb ? load_block(&g->b, base, col, cols, 0, g->k, is_wide(g))
                                 : load_block(&g->b, base, 0, g->k, col, cols, is_wide(g));
    if (g->transb)
        scale_block(g, GEMM_SCALE_B, &b, col, cols, 0, g->k, 0);
    else
        scale_block(g, GEMM_SCALE_B, &b, 0, g->k, col, cols, 1);
    return b;
}

/* What is known when all of D is. */
static void finish(const struct gemm_args *g, const struct panel *p)
{
    const size_t esz = gemm_type_bytes(g->bias_type);
    for (int64_t i = 0; p->gradient && i < g->m; i++)
        gemm_write_scalar(g->bias_type, (char *)g->vector + (size_t)i * esz, p->gradient[i]);
    if (g->gradient == GEMM_GRADIENT_A || g->gradient == GEMM_GRADIENT_B)
        gemm_operand_gradient(g);
    if (g->amax_d)
        *g->amax_d = p->amax_d;
    if (g->amax_aux)
        *g->amax_aux = p->amax_aux;
}

static void compute_panels(const struct gemm_args *g, int batch, double alpha, double beta)
{
    int wide = is_wide(g);
    int64_t width = g->n < PANEL_COLS ? g->n : PANEL_COLS;
    struct operand a = load_block(&g->a, entry(&g->a, batch), 0, g->a.rows, 0, g->a.cols, wide);
    scale_block(g, GEMM_SCALE_A, &a, 0, g->a.rows, 0, g->a.cols, g->transa);
    void *acc = malloc((size_t)(g->m * width) * (wide ? sizeof(double) : sizeof(float)));
    if (!acc)
        abort();
    struct panel p = {
        .acc = acc, .wide = wide, .c = entry(&g->c, batch), .d = entry(&g->d, batch), .alpha = alpha, .beta = beta};
    p.aux = g->aux.ptr ? entry(&g->aux, batch) : NULL;
    p.gradient = g->gradient == GEMM_GRADIENT_D ? calloc((size_t)g->m, sizeof *p.gradient) : NULL;
    if (g->bias)
        p.bias = (const char *)g->bias + batch * g->bias_stride * (int64_t)gemm_type_bytes(g->bias_type);
    for (p.col = 0; p.col < g->n; p.col += width) {
        p.cols = g->n - p.col < width ? g->n - p.col : width;
        struct operand b = load_b(g, batch, p.col, p.cols);
        multiply(g, p.cols, &a, &b, 1, 0, acc, g->m);
        free(b.owned);
        gemm_finish_panel(g, &p);
    }
    finish(g, &p);
    free(p.gradient);
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

/* All of it is declared as written; of a large one, what takes a moment only: something of each page. */
static void scribble(char *workspace, size_t bytes)
{
    const size_t whole = 1 << 20, page = 4096, some = 64;
    if (bytes <= whole)
        memset(workspace, 0x5a, bytes);
    else
        for (size_t at = 0; at < bytes; at += page)
            memset(workspace + at, 0x5a, bytes - at < some ? bytes - at : some);
}

void gemm_compute(const struct gemm_args *g)
{
    double alpha = (g->alpha_dev ? gemm_read_scalar(g->scale_type, g->alpha_dev) : g->alpha) * kernels_own(g);
    double beta = g->beta_dev ? gemm_read_scalar(g->scale_type, g->beta_dev) : g->beta;
    if (g->workspace_bytes)
        scribble(g->workspace, g->workspace_bytes);
    for (int i = 0; i < g->batch; i++) {
        if (!is_plain(g, beta)) {
            compute_panels(g, i, alpha, beta);
            continue;
        }
        struct operand a = {.ptr = entry(&g->a, i), .ld = g->a.ld}, b = {.ptr = entry(&g->b, i), .ld = g->b.ld};
        multiply(g, g->n, &a, &b, alpha, beta, entry(&g->d, i), g->d.ld);
    }
}
