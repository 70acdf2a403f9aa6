/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_epilogue.h"
#include "float16.h"
#include "float8.h"
#include "gemm_scale.h"

void gemm_write_scalar(cudaDataType type, void *p, double v)
{
    switch (type) {
    case CUDA_R_8F_E4M3:
        *(uint8_t *)p = f32_to_e4m3((float)v);
        break;
    case CUDA_R_8F_E5M2:
        *(uint8_t *)p = f32_to_e5m2((float)v);
        break;
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
static double inner_of_gelu(double x)
{
    return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + inner_of_gelu(x));
}

static double gelu_slope(double x)
{
    const double t = inner_of_gelu(x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
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

static void note_largest(float *largest, double v)
{
    if (fabs(v) > *largest || isnan(v))
        *largest = (float)fabs(v);
}

/* ReLU's bits: 1 where the value passed. Those behind the last row, up to the next multiple of 128, are written as 0. */
static void write_bit(char *column, int64_t i, int64_t m, int set)
{
    unsigned char *byte = (unsigned char *)column + i / 8;
    if (i % 8 == 0)
        *byte = 0;
    *byte |= (unsigned char)(set << (i % 8));
    for (int64_t pad = (i + 8) / 8; i + 1 == m && pad % 16; pad++)
        ((unsigned char *)column)[pad] = 0;
}

/* `v` as it goes into the activation, to or from the auxiliary matrix; what comes out. */
static double through_aux(const struct gemm_args *g, struct panel *p, int64_t i, int64_t col, double v)
{
    if (g->aux_bits) {
        char *column = p->aux + col * g->aux.ld / 8;
        if (g->aux_in)
            return ((unsigned char *)column)[i / 8] >> (i % 8) & 1 ? v : 0;
        write_bit(column, i, g->m, v > 0);
        return activate(g->epilogue, v);
    }
    char *at = p->aux + (col * g->aux.ld + i) * (int64_t)gemm_type_bytes(g->aux.type);
    if (g->aux_in)
        return v * gelu_slope(gemm_read_scalar(g->aux.type, at) * gemm_scalar_scale(g, GEMM_SCALE_AUX));
    note_largest(&p->amax_aux, v);
    gemm_write_scalar(g->aux.type, at, v * gemm_scalar_scale(g, GEMM_SCALE_AUX));
    return activate(g->epilogue, v);
}

static double finish_element(const struct gemm_args *g, struct panel *p, int64_t i, int64_t j, const char *c)
{
    const int64_t at = i + j * g->m, csz = (int64_t)gemm_type_bytes(g->c.type);
    const double acc = p->wide ? ((const double *)p->acc)[at] : (double)((const float *)p->acc)[at];
    const double old = p->beta != 0 ? gemm_read_scalar(g->c.type, c + i * csz) * gemm_scalar_scale(g, GEMM_SCALE_C) : 0;
    double v = scale(p->wide, p->alpha, acc * gemm_outer_scale(g, i, p->col + j), p->beta, old);
    if (p->bias)
        v += gemm_read_scalar(g->bias_type, p->bias + i * (int64_t)gemm_type_bytes(g->bias_type));
    v = g->aux.ptr ? through_aux(g, p, i, p->col + j, v) : activate(g->epilogue, v);
    if (p->gradient)
        p->gradient[i] += v;
    note_largest(&p->amax_d, v);
    return v * gemm_scalar_scale(g, GEMM_SCALE_D);
}

void gemm_finish_panel(const struct gemm_args *g, struct panel *p)
{
    const int64_t csz = (int64_t)gemm_type_bytes(g->c.type), dsz = (int64_t)gemm_type_bytes(g->d.type);
    for (int64_t j = 0; j < p->cols; j++) {
        const char *c = p->c + (p->col + j) * g->c.ld * csz;
        char *d = p->d + (p->col + j) * g->d.ld * dsz;
        for (int64_t i = 0; i < g->m; i++)
            gemm_write_scalar(g->d.type, d + i * dsz, finish_element(g, p, i, j, c));
    }
}

void gemm_operand_gradient(const struct gemm_args *g)
{
    const int of_b = g->gradient == GEMM_GRADIENT_B;
    const struct gemm_mat *m = of_b ? &g->b : &g->a;
    const int along_rows = of_b ? !g->transb : g->transa; /* the inner dimension lies along memory */
    const int64_t esz = (int64_t)gemm_type_bytes(m->type), vsz = (int64_t)gemm_type_bytes(g->bias_type);
    for (int64_t i = 0; i < (of_b ? g->n : g->m); i++) {
        double sum = 0;
        for (int64_t l = 0; l < g->k; l++)
            sum += gemm_read_scalar(m->type, (const char *)m->ptr + (along_rows ? l + i * m->ld : i + l * m->ld) * esz);
        gemm_write_scalar(g->bias_type, (char *)g->vector + i * vsz, sum);
    }
}
