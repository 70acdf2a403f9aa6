/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the library's sums over ranks (kernels/scatter.h says what they are): for each element in turn, in fp32
 * and in the order of the ranks, then one multiplication and one rounding. Arithmetic is IEEE's, and a NaN that comes of
 * it is the one that NVIDIA's devices give (PTX ISA, add). */
#include "../blas/float16.h"
#include "../bulk.h"
#include "device_code.h"
#include <math.h>

#define MAX_RANKS 64

struct arguments { /* as the kernels' one parameter is laid out */
    uint64_t out, also, in[MAX_RANKS], count;
    double factor;
    int32_t ranks;
};
_Static_assert(sizeof(struct arguments) == 552, "as in the PTX");

enum format { BF16, FP16, FP32, BYTES };

static size_t width(enum format f)
{
    return f == FP32 ? 4 : f == BYTES ? 1 : 2;
}

static double value_at(enum format f, uint64_t base, size_t i)
{
    if (f == FP32)
        return (double)((const float *)base)[i];
    uint16_t bits = ((const uint16_t *)base)[i];
    return (double)(f == BF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
}

static void put_at(enum format f, uint64_t base, size_t i, float value)
{
    if (f == FP32)
        ((uint32_t *)base)[i] = isnan(value) ? 0x7fffffffu : f32_bits(value);
    else
        ((uint16_t *)base)[i] = f == BF16 ? f32_to_bf16(value) : f32_to_f16(value);
}

static void sum(enum format f, const struct arguments *a)
{
    if (f == BYTES) { /* is no sum: it is one contribution, as it is */
        if (a->out != a->in[0])
            bulk_copy((char *)a->out, (const char *)a->in[0], a->count);
        return;
    }
    for (size_t i = 0; i < a->count; i++) {
        float total = (float)value_at(f, a->in[0], i);
        for (int r = 1; r < a->ranks; r++)
            total = (float)((double)total +
                            value_at(f, a->in[r], i)); /* one rounding: fp64 has more than twice the digits */
        total = a->factor == 1 ? total : (float)(total * a->factor);
        put_at(f, a->out, i, total);
        if (a->also)
            put_at(f, a->also, i, total);
    }
}

static unsigned ranges(enum format f, const struct arguments *a, struct softgpu_access *list, unsigned max)
{
    size_t bytes = a->count * width(f);
    unsigned n = 0;

    for (int r = 0; bytes && r < a->ranks && r < MAX_RANKS; r++, n++)
        if (n < max)
            list[n] = (struct softgpu_access){a->in[r], bytes, 1, bytes, 0};
    if (bytes && n++ < max)
        list[n - 1] = (struct softgpu_access){a->out, bytes, 1, bytes, 1};
    if (bytes && a->also && n++ < max)
        list[n - 1] = (struct softgpu_access){a->also, bytes, 1, bytes, 1};
    return n;
}

static const char *wrong(enum format f, const struct arguments *a)
{
    size_t bytes = a->count * width(f);

    if (a->ranks < 1 || a->ranks > MAX_RANKS)
        return "not 1 to 64 contributions";
    if (f == BYTES && (a->ranks != 1 || a->also))
        return "a copy is of one contribution, to one place";
    if (a->out % width(f))
        return "the output is not aligned to its type";
    for (int r = 0; r < a->ranks; r++) {
        uint64_t apart = a->in[r] > a->out ? a->in[r] - a->out : a->out - a->in[r];
        if (a->in[r] % width(f))
            return "a contribution is not aligned to its type";
        if (apart && apart < bytes)
            return "the output overlaps a part of a contribution";
    }
    return NULL;
}

#define FORMAT(name, format)                                                                                           \
    static void run_##name(void *args)                                                                                 \
    {                                                                                                                  \
        if (!sg_cfg.compute_off)                                                                                       \
            sum(format, args);                                                                                         \
    }                                                                                                                  \
    static unsigned ranges_##name(const void *args, struct softgpu_access *list, unsigned max)                         \
    {                                                                                                                  \
        return ranges(format, args, list, max);                                                                        \
    }                                                                                                                  \
    static const char *wrong_##name(const void *args)                                                                  \
    {                                                                                                                  \
        return wrong(format, args);                                                                                    \
    }
FORMAT(bf16, BF16)
FORMAT(f16, FP16)
FORMAT(f32, FP32)
FORMAT(copy, BYTES)

/* The library copies so from other devices only. */
static double link_copy(const void *args)
{
    return (double)((const struct arguments *)args)->count;
}

#define MODEL(prefix, kernel, link)                                                                                    \
    {                                                                                                                  \
        .desc = {.name = prefix #kernel,                                                                               \
                 .link_bytes = link,                                                                                   \
                 .arg_bytes = sizeof(struct arguments),                                                                \
                 .run = run_##kernel,                                                                                  \
                 .access = ranges_##kernel},                                                                           \
        .wrong = wrong_##kernel                                                                                        \
    }
const struct sg_model sg_models_reduce[] = {MODEL("slr_reduce_", bf16, NULL), MODEL("slr_reduce_", f16, NULL),
                                            MODEL("slr_reduce_", f32, NULL), MODEL("slr_", copy, link_copy)};
const unsigned sg_models_reduce_count = sizeof(sg_models_reduce) / sizeof(*sg_models_reduce);
