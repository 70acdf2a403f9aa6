/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_case.h"
#include "../float16.h"

#include <math.h>

size_t type_size(cudaDataType type)
{
    switch (type) {
    case CUDA_R_8I:
        return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_64F:
        return 8;
    default:
        return 4;
    }
}

double get(cudaDataType type, const void *base, size_t i)
{
    switch (type) {
    case CUDA_R_8I:
        return ((const int8_t *)base)[i];
    case CUDA_R_16F:
        return f16_to_f32(((const uint16_t *)base)[i]);
    case CUDA_R_16BF:
        return bf16_to_f32(((const uint16_t *)base)[i]);
    case CUDA_R_32I:
        return ((const int32_t *)base)[i];
    case CUDA_R_64F:
        return ((const double *)base)[i];
    default:
        return ((const float *)base)[i];
    }
}

void put(cudaDataType type, void *base, size_t i, double v)
{
    switch (type) {
    case CUDA_R_8I:
        ((int8_t *)base)[i] = (int8_t)v;
        break;
    case CUDA_R_16F:
        ((uint16_t *)base)[i] = f32_to_f16((float)v);
        break;
    case CUDA_R_16BF:
        ((uint16_t *)base)[i] = f32_to_bf16((float)v);
        break;
    case CUDA_R_32I:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    case CUDA_R_64F:
        ((double *)base)[i] = v;
        break;
    default:
        ((float *)base)[i] = (float)v;
    }
}

struct matrix matrix_new(const struct cu *cu, cudaDataType type, int64_t rows, int64_t cols, int64_t pad, int batch,
                         unsigned seed)
{
    struct matrix m = {.type = type, .rows = rows, .cols = cols, .ld = (rows ? rows : 1) + pad, .batch = batch};
    m.stride = m.ld * cols + 3 * pad;
    m.count = (size_t)(m.stride * batch + 1);
    m.host = malloc(m.count * sizeof *m.host);
    for (size_t i = 0; i < m.count; i++) {
        seed = seed * 1103515245u + 12345u;
        m.host[i] = (double)(seed >> 16 & 3) - 1;
    }
    if (cu->cuMemAlloc(&m.dev, m.count * type_size(type)))
        exit(1);
    matrix_upload(cu, &m);
    return m;
}

void matrix_upload(const struct cu *cu, struct matrix *m)
{
    void *raw = malloc(m->count * type_size(m->type));
    for (size_t i = 0; i < m->count; i++)
        put(m->type, raw, i, m->host[i]);
    /* Other streams do not wait for the copy. */
    if (cu->cuMemcpyHtoD(m->dev, raw, m->count * type_size(m->type)) || cu->cuStreamSynchronize(NULL))
        exit(1);
    free(raw);
}

void matrix_free(const struct cu *cu, struct matrix *m)
{
    cu->cuMemFree(m->dev);
    free(m->host);
}

static double at(const struct matrix *m, int batch, int64_t row, int64_t col)
{
    return m->host[batch * m->stride + row + col * m->ld];
}

double *reference(const struct gemm_case *g, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                  const double *bias)
{
    double *want = malloc(c->count * sizeof *want);
    for (size_t i = 0; i < c->count; i++)
        want[i] = c->host[i];
    for (int e = 0; e < g->batch; e++)
        for (int64_t j = 0; j < g->n; j++)
            for (int64_t i = 0; i < g->m; i++) {
                double sum = 0;
                for (int64_t p = 0; p < g->k; p++)
                    sum += (g->ta == CUBLAS_OP_N ? at(a, e, i, p) : at(a, e, p, i)) *
                           (g->tb == CUBLAS_OP_N ? at(b, e, p, j) : at(b, e, j, p));
                double old = g->beta != 0 ? g->beta * at(c, e, i, j) : 0;
                want[e * c->stride + i + j * c->ld] = g->alpha * sum + old + (bias ? bias[i] : 0);
            }
    return want;
}

size_t differences(const struct cu *cu, const struct gemm_case *g, const struct matrix *c, const double *want)
{
    size_t bad = 0;
    void *raw = malloc(c->count * type_size(c->type));
    if (cu->cuCtxSynchronize() || cu->cuMemcpyDtoH(raw, c->dev, c->count * type_size(c->type)))
        exit(1);
    for (size_t i = 0; i < c->count; i++) {
        double got = get(c->type, raw, i);
        if (got == want[i] || (isnan(got) && isnan(want[i])))
            continue;
        if (!bad++)
            fprintf(stderr, "op %d%d m%ld n%ld k%ld pad%ld batch%d beta%g types %d->%d: [%zu] is %g, not %g\n", g->ta,
                    g->tb, (long)g->m, (long)g->n, (long)g->k, (long)g->pad, g->batch, g->beta, g->ab, g->c, i, got,
                    want[i]);
    }
    free(raw);
    return bad;
}
