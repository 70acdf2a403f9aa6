/* SPDX-License-Identifier: Apache-2.0 */
#include "scatter.h"

#include "softgpu/blas/float16.h"

#define POISON 0x7b /* no type reads an integer from such bytes */

enum { SPARE_REACH = 30 }; /* sums over eight ranks are exact in bf16 */
enum { OF_A, OF_B, OF_C, OF_BIAS, OF_SPARE };

size_t elem_bytes(enum elem type)
{
    return type == FP32 ? 4 : 2;
}

ncclDataType_t nccl_type(enum elem type)
{
    return type == FP32 ? ncclFloat32 : type == FP16 ? ncclFloat16 : ncclBfloat16;
}

void elem_put(enum elem type, uint8_t *to, size_t i, double value)
{
    const float f = (float)value;
    const uint16_t half = type == FP16 ? f32_to_f16(f) : f32_to_bf16(f);
    if (type == FP32)
        memcpy(to + i * 4, &f, 4);
    else
        memcpy(to + i * 2, &half, 2);
}

UNWATCHED int integer(uint64_t seed, uint64_t i, int reach)
{
    return (int)(hash64(seed, i) % (2 * (uint64_t)reach + 1)) - reach;
}

void edge(struct world *w, int event, cudaStream_t from, cudaStream_t to)
{
    CUDA(cudaEventRecord(w->event[event], from));
    CUDA(cudaStreamWaitEvent(to, w->event[event], 0));
}

/* ---- buffers ---- */

static size_t a_count(const struct site *t)
{
    return (size_t)t->shape.m * (size_t)t->shape.k;
}

static size_t b_count(const struct site *t)
{
    return (size_t)t->n * (size_t)t->shape.k;
}

static uint8_t *device(size_t elements, size_t elem)
{
    uint8_t *p;
    CUDA(cudaMalloc((void **)&p, elements * elem));
    return p;
}

static uint8_t *recv_of(const struct site *t)
{
    switch (t->shape.recv) {
    case RECV_IN_PLACE:
        return t->w->all ? t->c : t->c + (size_t)t->w->rank * t->count * t->elem;
    case RECV_IN_A:
        return t->a;
    case RECV_IN_B:
        return t->b;
    case RECV_IN_WORKSPACE:
        return t->w->workspace;
    default:
        return device(t->got, t->elem);
    }
}

void site_open(struct site *t, struct world *w, const struct shape *shape)
{
    *t = (struct site){.w = w, .shape = *shape, .n = shape->cols * w->nranks, .elem = elem_bytes(shape->type)};
    t->shape.alpha = shape->alpha ? shape->alpha : 1;
    t->shape.reach = shape->reach ? shape->reach : 2;
    t->count = (size_t)shape->m * (size_t)shape->cols;
    t->all = t->count * (size_t)w->nranks;
    t->got = w->all ? t->all : t->count;
    /* A third of an integer is not exact in fp32, whether it is divided or multiplied by a third. */
    t->scale = shape->avg && shape->type == FP32 ? w->nranks : 1;
    const size_t least = t->got; /* what is received may lie there */
    t->a = device(a_count(t) > least ? a_count(t) : least, t->elem);
    t->b = device(b_count(t) > least ? b_count(t) : least, t->elem);
    t->c = device(t->all, t->elem);
    t->bias = device((size_t)shape->m, t->elem);
    t->spare = device(t->all, t->elem);
    t->scratch = device(t->all, t->elem);
    t->recv = recv_of(t);
    const float scalars[2] = {(float)t->shape.alpha, (float)t->shape.beta};
    t->scalars = (float *)(void *)device(2, 4);
    to_device(t->scalars, scalars, sizeof scalars);
    if (shape->type == FP16 && shape->api == HGEMM && shape->device_scalars)
        DIE(2, "%s: scalars of a half are not made here", shape->name);
}

void site_close(struct site *t)
{
    void *const all[] = {t->a,     t->b,       t->c,       t->bias,
                         t->spare, t->scratch, t->scalars, t->shape.recv == RECV_OWN ? t->recv : NULL};
    for (int i = 0; i < LENGTH(all); i++)
        CUDA(cudaFree(all[i]));
}

ncclResult_t world_reduce(struct world *w, const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return w->all ? ncclAllReduce(send, recv, count * (size_t)w->nranks, type, op, comm, stream)
                  : ncclReduceScatter(send, recv, count, type, op, comm, stream);
}

size_t site_first(const struct site *t)
{
    return t->w->all ? 0 : (size_t)t->w->rank * t->count;
}

void site_call(struct site *t, cudaStream_t stream)
{
    NCCL(world_reduce(t->w, t->c, t->recv, t->count, nccl_type(t->shape.type), t->shape.avg ? ncclAvg : ncclSum,
                      t->w->comm, stream));
}

/* ---- turns ---- */

static size_t in_elements(const struct site *t)
{
    return a_count(t) + b_count(t) + 2 * t->all + (size_t)t->shape.m;
}

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes + 1);
    CHECK(p, "no memory");
    return p;
}

void turn_open(struct turn *u, struct site *t)
{
    *u = (struct turn){.t = t};
    for (int r = 0; r < t->w->nranks; r++) {
        u->c[r] = take(t->all * sizeof(int));
        u->product[r] = take(t->all * sizeof(int));
        u->spare[r] = take(t->all * sizeof(int));
    }
    CUDA(cudaMallocHost((void **)&u->in, in_elements(t) * t->elem));
    CUDA(cudaMallocHost((void **)&u->out, (t->got + 2 * t->all) * t->elem));
}

void turn_close(struct turn *u)
{
    for (int r = 0; r < u->t->w->nranks; r++) {
        free(u->c[r]);
        free(u->product[r]);
        free(u->spare[r]);
    }
    CUDA(cudaFreeHost(u->in));
    CUDA(cudaFreeHost(u->out));
    free(u->want_recv);
    free(u->want_c);
    free(u->want_scratch);
}

UNWATCHED static uint64_t seed_of(const struct turn *u, int rank, int what)
{
    return (u->seed * MOST_RANKS + (uint64_t)rank) * 8 + (uint64_t)what;
}

/* Element (row, l) of op(A); (l, col) of op(B). */
UNWATCHED static int a_at(const struct turn *u, int rank, int row, int l)
{
    const struct shape *s = &u->t->shape;
    return integer(seed_of(u, rank, OF_A), (uint64_t)(s->ta ? row * s->k + l : l * s->m + row), s->reach);
}

UNWATCHED static int b_at(const struct turn *u, int rank, int l, int col)
{
    const struct shape *s = &u->t->shape;
    return integer(seed_of(u, rank, OF_B), (uint64_t)(s->tb ? l * u->t->n + col : col * s->k + l), s->reach);
}

UNWATCHED static void model_product(struct turn *u, int rank)
{
    const struct site *t = u->t;
    const int m = t->shape.m, k = t->shape.k;
    int *a = take((size_t)m * (size_t)k * sizeof *a), *b = take((size_t)k * sizeof *b);
    for (int row = 0; row < m; row++)
        for (int l = 0; l < k; l++)
            a[row * k + l] = a_at(u, rank, row, l) * t->scale;
    for (int col = 0; col < t->n; col++) {
        for (int l = 0; l < k; l++)
            b[l] = b_at(u, rank, l, col);
        for (int row = 0; row < m; row++) {
            int sum = 0;
            for (int l = 0; l < k; l++)
                sum += a[row * k + l] * b[l];
            u->product[rank][col * m + row] = sum * t->shape.alpha;
        }
    }
    free(a);
    free(b);
}

UNWATCHED static void model(struct turn *u, int rank)
{
    const struct site *t = u->t;
    model_product(u, rank);
    for (size_t i = 0; i < t->all; i++) {
        int value = u->product[rank][i];
        if (t->shape.beta)
            value += t->shape.beta * integer(seed_of(u, rank, OF_C), i, 2) * t->scale;
        if (t->shape.api == LT_BIAS)
            value += integer(seed_of(u, rank, OF_BIAS), i % (size_t)t->shape.m, 2) * t->scale;
        u->c[rank][i] = value;
        u->spare[rank][i] = integer(seed_of(u, rank, OF_SPARE), i, SPARE_REACH) * t->scale;
    }
}

static uint8_t *fill(const struct turn *u, uint8_t *at, size_t n, int what, int reach, int scale)
{
    for (size_t i = 0; i < n; i++)
        elem_put(u->t->shape.type, at, i, integer(seed_of(u, u->t->w->rank, what), i, reach) * scale);
    return at + n * u->t->elem;
}

/* From -2 to 2 in e4m3; as much room as elements of C's type. */
static uint8_t *fill_narrow(const struct turn *u, uint8_t *at, size_t n, int what)
{
    static const uint8_t codes[] = {0xc0, 0xb8, 0, 0x38, 0x40};
    for (size_t i = 0; i < n; i++)
        at[i] = codes[integer(seed_of(u, u->t->w->rank, what), i, 2) + 2];
    return at + n * u->t->elem;
}

static void fill_all(struct turn *u)
{
    const struct site *t = u->t;
    uint8_t *at = u->in;
    if (t->shape.api == LT_FP8) {
        at = fill_narrow(u, at, a_count(t), OF_A);
        at = fill_narrow(u, at, b_count(t), OF_B);
    } else {
        at = fill(u, at, a_count(t), OF_A, t->shape.reach, t->scale);
        at = fill(u, at, b_count(t), OF_B, t->shape.reach, 1);
    }
    at = fill(u, at, t->all, OF_C, 2, t->scale);
    at = fill(u, at, t->all, OF_SPARE, SPARE_REACH, t->scale);
    fill(u, at, (size_t)t->shape.m, OF_BIAS, 2, t->scale);
}

static const uint8_t *upload(uint8_t *to, const uint8_t *from, size_t bytes, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    return from + bytes;
}

void turn_load(struct turn *u, cudaStream_t stream)
{
    struct site *t = u->t;
    const uint8_t *at = u->in;
    u->seed = ++t->turns;
    u->poisoned = false;
    for (int r = 0; r < t->w->nranks; r++)
        model(u, r);
    fill_all(u);
    at = upload(t->a, at, a_count(t) * t->elem, stream);
    at = upload(t->b, at, b_count(t) * t->elem, stream);
    if (t->shape.beta)
        upload(t->c, at, t->all * t->elem, stream);
    else
        CUDA(cudaMemsetAsync(t->c, POISON, t->all * t->elem, stream));
    at = upload(t->spare, at + t->all * t->elem, t->all * t->elem, stream);
    upload(t->bias, at, (size_t)t->shape.m * t->elem, stream);
    CUDA(cudaMemsetAsync(t->scratch, POISON, t->all * t->elem, stream));
    if (t->shape.recv == RECV_OWN)
        CUDA(cudaMemsetAsync(t->recv, POISON, t->got * t->elem, stream));
}

static double summed(const struct site *t, int *const *from, size_t i)
{
    const int n = t->w->nranks;
    double sum = 0;
    float in_order = (float)from[0][i];
    for (int r = 0; r < n; r++)
        sum += from[r][i];
    for (int r = 1; r < n; r++)
        in_order += (float)from[r][i];
    if (t->shape.in_order)
        return (double)in_order;
    return t->shape.avg ? sum / n : sum;
}

void turn_expect(struct turn *u, int *const *from, size_t at, size_t count, bool turned)
{
    const struct site *t = u->t;
    const size_t me = (size_t)(turned ? t->w->nranks - 1 - t->w->rank : t->w->rank);
    if (!u->want_recv)
        u->want_recv = take(t->got * t->elem);
    memset(u->want_recv, POISON, t->got * t->elem);
    const size_t first = t->w->all ? 0 : me * count, n = t->w->all ? count * (size_t)t->w->nranks : count;
    for (size_t i = 0; i < n; i++)
        elem_put(t->shape.type, u->want_recv, i, summed(t, from, at + first + i));
}

void turn_expect_c(struct turn *u)
{
    const struct site *t = u->t;
    if (!u->want_c)
        u->want_c = take(t->all * t->elem);
    for (size_t i = 0; i < t->all; i++)
        elem_put(t->shape.type, u->want_c, i, u->c[t->w->rank][i]);
    if (t->shape.recv == RECV_IN_PLACE && !u->poisoned)
        memcpy(u->want_c + (size_t)(t->recv - t->c), u->want_recv, t->got * t->elem);
}

void turn_fetch(struct turn *u, cudaStream_t stream)
{
    const struct site *t = u->t;
    const size_t shard = t->got * t->elem, all = t->all * t->elem;
    CUDA(cudaMemcpyAsync(u->out, t->recv, shard, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaMemcpyAsync(u->out + shard, t->c, all, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaMemcpyAsync(u->out + shard + all, t->scratch, all, cudaMemcpyDeviceToHost, stream));
}

static void same(const struct turn *u, const uint8_t *have, const uint8_t *want, size_t count, const char *of,
                 const char *what)
{
    const struct site *t = u->t;
    size_t first = count, n = 0;
    for (size_t i = 0; want && i < count; i++)
        if (memcmp(have + i * t->elem, want + i * t->elem, t->elem) && n++ == 0)
            first = i;
    if (!n)
        return;
    uint32_t is = 0, should = 0;
    memcpy(&is, have + first * t->elem, t->elem);
    memcpy(&should, want + first * t->elem, t->elem);
    wrong("rank %d of %d: %s: turn %lu: %s: %zu of %zu elements differ, the first at %zu: %#x, expected %#x",
          t->w->rank, t->w->nranks, what, (unsigned long)u->seed, of, n, count, first, is, should);
}

void turn_check(struct turn *u, const char *what)
{
    const struct site *t = u->t;
    const uint8_t *c = u->out + t->got * t->elem;
    const bool apart = t->shape.recv != RECV_IN_PLACE || !u->poisoned;
    same(u, u->out, apart ? u->want_recv : NULL, t->got, "received", what);
    same(u, c, u->want_c, t->all, "C", what);
    same(u, c + t->all * t->elem, u->want_scratch, t->all, "beside", what);
}
