/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of reductions: floating-point types in fp64, rounded once; integers modulo 2^64, cut to their size. */
#include "comm.h"
#include "../blas/float16.h"

#include <math.h>

#define TILE 1024

/* One tile of values of any type, wide enough for each. */
union tile {
    double f[TILE];
    uint64_t u[TILE];
};

#define LOAD(ctype, field)                                                                                             \
    for (size_t i = 0; i < n; i++)                                                                                     \
        t->field[i] = (__typeof__(t->field[0]))((const ctype *)src)[at + i];                                           \
    break

static void load_tile(ncclDataType_t type, const void *src, size_t at, size_t n, union tile *t)
{
    switch (type) {
    case ncclInt8:
        LOAD(int8_t, u);
    case ncclUint8:
        LOAD(uint8_t, u);
    case ncclInt32:
        LOAD(int32_t, u);
    case ncclUint32:
        LOAD(uint32_t, u);
    case ncclInt64:
    case ncclUint64:
        LOAD(uint64_t, u);
    case ncclFloat32:
        LOAD(float, f);
    case ncclFloat64:
        LOAD(double, f);
    case ncclFloat16:
        for (size_t i = 0; i < n; i++)
            t->f[i] = (double)f16_to_f32(((const uint16_t *)src)[at + i]);
        break;
    default: /* ncclBfloat16; the callers refuse the fp8 types */
        for (size_t i = 0; i < n; i++)
            t->f[i] = (double)bf16_to_f32(((const uint16_t *)src)[at + i]);
    }
}

#define STORE(ctype, value)                                                                                            \
    for (size_t i = 0; i < n; i++)                                                                                     \
        ((ctype *)dst)[at + i] = (ctype)(value);                                                                       \
    break

static void store_tile(ncclDataType_t type, void *dst, size_t at, size_t n, const union tile *t)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        STORE(uint8_t, t->u[i]);
    case ncclInt32:
    case ncclUint32:
        STORE(uint32_t, t->u[i]);
    case ncclInt64:
    case ncclUint64:
        STORE(uint64_t, t->u[i]);
    case ncclFloat32:
        STORE(float, t->f[i]);
    case ncclFloat64:
        STORE(double, t->f[i]);
    case ncclFloat16:
        STORE(uint16_t, f32_to_f16((float)t->f[i]));
    default:
        STORE(uint16_t, f32_to_bf16((float)t->f[i]));
    }
}

static void combine_float(ncclRedOp_t op, union tile *acc, const union tile *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double a = acc->f[i], b = x->f[i];
        acc->f[i] = op == ncclProd ? a * b : op == ncclMax ? fmax(a, b) : op == ncclMin ? fmin(a, b) : a + b;
    }
}

static void combine_int(ncclRedOp_t op, int is_signed, union tile *acc, const union tile *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t a = acc->u[i], b = x->u[i];
        int less = is_signed ? (int64_t)a < (int64_t)b : a < b;
        acc->u[i] = op == ncclProd ? a * b : op == ncclMax ? (less ? b : a) : op == ncclMin ? (less ? a : b) : a + b;
    }
}

static int is_float(ncclDataType_t type)
{
    return type == ncclFloat16 || type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16;
}

static int is_signed_int(ncclDataType_t type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

static void average(ncclDataType_t type, int ranks, union tile *acc, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_float(type))
            acc->f[i] /= ranks;
        else if (is_signed_int(type))
            acc->u[i] = (uint64_t)((int64_t)acc->u[i] / ranks);
        else
            acc->u[i] /= (uint64_t)ranks;
}

void reduce_block(ncclDataType_t type, ncclRedOp_t op, const void *const *srcs, int nsrcs, void *dst, size_t count)
{
    union tile acc, x;
    for (size_t at = 0; at < count; at += TILE) {
        size_t n = count - at < TILE ? count - at : TILE;
        load_tile(type, srcs[0], at, n, &acc);
        for (int s = 1; s < nsrcs; s++) {
            load_tile(type, srcs[s], at, n, &x);
            if (is_float(type))
                combine_float(op, &acc, &x, n);
            else
                combine_int(op, is_signed_int(type), &acc, &x, n);
        }
        if (op == ncclAvg)
            average(type, nsrcs, &acc, n);
        store_tile(type, dst, at, n, &acc);
    }
}
