/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse_narrow.h"

#include <math.h>
#include "softgpu/blas/float16.h"
#include "softgpu/blas/float8.h"

enum { AUX_BITS = 128 };

size_t elem_of(cudaDataType type)
{
    return type == E4M3 || type == E5M2 ? 1 : type == BF16 ? 2 : 4;
}

void put_value(cudaDataType type, void *p, size_t i, float v)
{
    if (type == E4M3)
        ((uint8_t *)p)[i] = f32_to_e4m3(v);
    else if (type == E5M2)
        ((uint8_t *)p)[i] = f32_to_e5m2(v);
    else if (type == FP32)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = f32_to_bf16(v);
}

bool narrow(const struct narrow_case *c)
{
    return elem_of(c->x) == 1;
}

static size_t factors(enum scaling scaling, int64_t outer, int64_t inner)
{
    const size_t lines = (size_t)(inner + 127) / 128;
    switch (scaling) {
    case ROWS:
        return (size_t)outer * sizeof(float);
    case LINES:
        return (size_t)outer * lines * sizeof(float);
    case SQUARES:
        return (size_t)((outer + 127) / 128) * ((lines + 3) / 4 * 4) * sizeof(float);
    case TILES:
        return (size_t)((outer + 127) / 128 * 128) * (size_t)((inner + 127) / 128 * 4);
    default:
        return sizeof(float);
    }
}

enum scaling of_w(enum scaling of_x)
{
    return of_x == LINES ? SQUARES : of_x == SQUARES ? LINES : of_x;
}

struct shape shape_of(const struct narrow_case *c, int nranks)
{
    struct shape s = {.total = c->cols * nranks, .on_a = c->form != FORM_BN, .sums = c->form == FORM_AN};
    s.inner = s.sums ? s.total : c->k;
    const int64_t along = s.sums ? c->k : s.total;
    s.m = s.on_a ? along : c->other;
    s.n = s.on_a ? c->other : along;
    s.shard = (size_t)(c->cols * c->k);
    s.x = s.shard * (size_t)nranks;
    s.w = (size_t)(c->other * s.inner);
    s.d = (size_t)(s.m * s.n);
    s.sx = factors(c->scaling, along, s.inner);
    s.sw = factors(of_w(c->scaling), c->other, s.inner);
    s.sx_shard = s.sx / (size_t)nranks;
    s.c = narrow(c) && c->d != FP32 ? BF16 : c->d;
    const bool bits = c->epilogue & (CUBLASLT_EPILOGUE_RELU | 8);
    s.aux_ld = bits ? (s.m + AUX_BITS - 1) / AUX_BITS * AUX_BITS : (s.m + 7) / 8 * 8;
    s.aux = (size_t)(s.aux_ld * s.n) * 2;
    s.vector = (size_t)(c->epilogue & CUBLASLT_EPILOGUE_BGRADB ? s.n : s.m);
    return s;
}

static char *device(size_t bytes)
{
    void *p;
    CUDA(cudaMalloc(&p, bytes));
    return p;
}

static struct output make_output(const struct narrow_case *c, const struct shape *s)
{
    return (struct output){device(s->d * elem_of(c->d)), device(s->aux), device(s->vector * 4), device(16)};
}

struct memory allocate(const struct narrow_case *c, const struct shape *s)
{
    return (struct memory){.send = device(s->shard * elem_of(c->x)),
                           .recv = device(s->x * elem_of(c->x)),
                           .w = device(s->w * elem_of(c->w)),
                           .c = device(s->d * 4),
                           .sx = device(s->sx),
                           .sx_send = device(s->sx),
                           .sw = device(s->sw),
                           .sd = device(16),
                           .bias = device(s->vector * 4),
                           .workspace = device(WORKSPACE),
                           .scalars = device(16),
                           .side = device(64 * 64),
                           .fused = make_output(c, s),
                           .whole = make_output(c, s)};
}

UNWATCHED static float factor(uint64_t seed, uint64_t i)
{
    return ldexpf(1, (int)(hash64(seed, i) % 3) - 1);
}

enum { SEED_W = 77, SEED_C = 99, SEED_BIAS = 111, SEED_SX = 133, SEED_SW = 155, SEED_AUX = 177 };

static void copy_up(char *to, const void *host, size_t bytes, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void upload(cudaDataType type, char *to, size_t n, uint64_t seed, cudaStream_t stream)
{
    char *host = malloc(n * elem_of(type));
    for (size_t i = 0; i < n; i++)
        put_value(type, host, i, (float)small(seed, i));
    copy_up(to, host, n * elem_of(type), stream);
    free(host);
}

static void upload_factors(enum scaling scaling, char *to, size_t bytes, uint64_t seed, cudaStream_t stream)
{
    char *host = malloc(bytes);
    for (size_t i = 0; i < bytes / (scaling == TILES ? 1 : sizeof(float)); i++)
        if (scaling == TILES)
            host[i] = (char)(uint8_t)(126 + hash64(seed, i) % 3);
        else
            ((float *)host)[i] = factor(seed, i);
    copy_up(to, host, bytes, stream);
    free(host);
}

/* The factor of element (outer, inner), from what was uploaded. */
UNWATCHED static float factor_at(enum scaling scaling, uint64_t seed, int64_t outer, int64_t inner, int64_t all_outer,
                                 int64_t all_inner)
{
    const int64_t lines = (all_inner + 127) / 128, block = inner / 32;
    switch (scaling) {
    case NONE:
        return 1;
    case ROWS:
        return factor(seed, (uint64_t)outer);
    case LINES:
        return factor(seed, (uint64_t)(inner / 128 * all_outer + outer));
    case SQUARES:
        return factor(seed, (uint64_t)(outer / 128 * ((lines + 3) / 4 * 4) + inner / 128));
    case TILES:
        return ldexpf(1, (int)(hash64(seed, (uint64_t)((outer / 128 * lines + block / 4) * 512 + outer % 32 * 16 +
                                                       outer % 128 / 32 * 4 + block % 4)) %
                               3) -
                             1);
    default:
        return factor(seed, 0);
    }
}

/* The factors of X are made by their places, so that a rank's part of those for rows is what it sends. */
void load(const struct rank *r, const struct narrow_case *c, const struct shape *s, const struct memory *mem,
          uint64_t seed)
{
    char *send = c->in_place ? mem->recv + (size_t)r->rank * s->shard * elem_of(c->x) : mem->send;
    const float quarter = 0.25f, scalars[2] = {1, (float)c->beta};
    CUDA(cudaMemsetAsync(mem->recv, 0x7f, s->x * elem_of(c->x), r->stream));
    upload(c->w, mem->w, s->w, seed + SEED_W, r->stream);
    upload(s->c, mem->c, s->d, seed + SEED_C, r->stream);
    upload(narrow(c) ? BF16 : c->d, mem->bias, s->vector, seed + SEED_BIAS, r->stream);
    upload_factors(c->scaling, mem->sx_send, s->sx, seed + SEED_SX, r->stream);
    upload_factors(of_w(c->scaling), mem->sw, s->sw, seed + SEED_SW, r->stream);
    copy_up(mem->sd, &quarter, sizeof quarter, r->stream);
    copy_up(mem->scalars, scalars, sizeof scalars, r->stream);
    CUDA(cudaMemsetAsync(mem->sx, 0x7f, s->sx, r->stream));
    if (c->scales == GIVEN || c->scales == OF_LARGE)
        CUDA(cudaMemcpyAsync(mem->sx, mem->sx_send, s->sx, cudaMemcpyDeviceToDevice, r->stream));
    for (int i = 0; i < 2; i++) {
        const struct output *o = i ? &mem->whole : &mem->fused;
        if (s->sums || c->c_is_d)
            upload(c->d, o->d, s->d, seed + SEED_C, r->stream);
        else
            CUDA(cudaMemsetAsync(o->d, 0x7e, s->d * elem_of(c->d), r->stream));
        /* What a gradient reads has to be the same; what is written, here and there, must not look so before. */
        if (c->epilogue & (8 | 64))
            upload(BF16, o->aux, s->aux / 2, seed + SEED_AUX, r->stream);
        else
            CUDA(cudaMemsetAsync(o->aux, 0x55, s->aux, r->stream));
        CUDA(cudaMemsetAsync(o->vector, 0x7e, s->vector * 4, r->stream));
        CUDA(cudaMemsetAsync(o->amax, 0x7e, 16, r->stream));
    }
    upload(c->x, send, s->shard, seed + (uint64_t)r->rank, r->stream);
}

void release(const struct memory *mem)
{
    char *const all[] = {mem->send,
                         mem->recv,
                         mem->w,
                         mem->c,
                         mem->sx,
                         mem->sx_send,
                         mem->sw,
                         mem->sd,
                         mem->bias,
                         mem->workspace,
                         mem->scalars,
                         mem->side,
                         mem->fused.d,
                         mem->fused.aux,
                         mem->fused.vector,
                         mem->fused.amax,
                         mem->whole.d,
                         mem->whole.aux,
                         mem->whole.vector,
                         mem->whole.amax};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA(cudaFree(all[i]));
}

UNWATCHED float expected(const struct narrow_case *c, const struct shape *s, uint64_t seed, int64_t row, int64_t col)
{
    const int64_t along = s->on_a ? row : col, across = s->on_a ? col : row, outer = s->sums ? c->k : s->total;
    double sum = 0;
    for (int64_t p = 0; p < s->inner; p++) {
        const size_t at = (size_t)(s->sums ? along + p * c->k : p + along * c->k);
        sum += small(seed + at / s->shard, at % s->shard) *
               (double)small(seed + SEED_W, (uint64_t)(across * s->inner + p)) *
               (double)factor_at(c->scaling, seed + SEED_SX, along, p, outer, s->inner) *
               (double)factor_at(of_w(c->scaling), seed + SEED_SW, across, p, c->other, s->inner);
    }
    if (c->beta != 0)
        sum += c->beta * small(seed + SEED_C, (uint64_t)(row + col * s->m));
    if (c->epilogue & CUBLASLT_EPILOGUE_BIAS)
        sum += small(seed + SEED_BIAS, (uint64_t)row);
    if (c->epilogue & CUBLASLT_EPILOGUE_RELU && sum < 0)
        sum = 0;
    return (float)(c->d_scale ? sum * 0.25 : sum);
}
