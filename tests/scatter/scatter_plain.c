/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters of what no GEMM has made: all sizes, types and operations. */
#include "scatter.h"

#include <string.h>

#include "softgpu/blas/float16.h"

#define POISON 0x7b

struct type {
    ncclDataType_t type;
    size_t bytes;
    const char *name;
};

static const struct type float_types[] = {
    {ncclBfloat16, 2, "bf16"}, {ncclFloat16, 2, "fp16"}, {ncclFloat32, 4, "fp32"}};
static const struct type other_types[] = {{ncclFloat64, 8, "fp64"}, {ncclInt8, 1, "int8"},   {ncclUint8, 1, "uint8"},
                                          {ncclInt32, 4, "int32"},  {ncclInt64, 8, "int64"}, {ncclUint64, 8, "uint64"}};

static void put_value(const struct type *type, uint8_t *to, size_t i, double value)
{
    const int64_t whole = (int64_t)value;
    switch (type->type) {
    case ncclFloat64:
        memcpy(to + i * 8, &value, 8);
        return;
    case ncclFloat32:
        elem_put(FP32, to, i, value);
        return;
    case ncclFloat16:
        elem_put(FP16, to, i, value);
        return;
    case ncclBfloat16:
        elem_put(BF16, to, i, value);
        return;
    default:
        memcpy(to + i * type->bytes, &whole, type->bytes);
    }
}

/* From 0 to 3: also of unsigned types, and products of eight are small. `times`: a third is not exact in fp32, whether
 * a sum is divided by three or multiplied by a third. */
static int value_of(uint64_t seed, int times, int rank, size_t i)
{
    return (int)(hash64(seed * 16 + (uint64_t)rank, i) % 4) * times;
}

static double expected(uint64_t seed, int times, int nranks, ncclRedOp_t op, size_t i)
{
    double all = value_of(seed, times, 0, i);
    for (int r = 1; r < nranks; r++) {
        const double v = value_of(seed, times, r, i);
        all = op == ncclProd  ? all * v
              : op == ncclMax ? (v > all ? v : all)
              : op == ncclMin ? (v < all ? v : all)
                              : all + v;
    }
    return op == ncclAvg ? all / nranks : all;
}

struct one {
    const struct type *type;
    ncclRedOp_t op;
    size_t count; /* of a shard; with `odd` more than that, of all */
    bool in_place;
    size_t odd; /* of an all-reduce: elements that the ranks do not share alike */
};

/* Received, and sent. */
static size_t got(const struct world *w, const struct one *o)
{
    return w->all ? o->count * (size_t)w->nranks + o->odd : o->count;
}

static size_t sent(const struct world *w, const struct one *o)
{
    return w->all ? got(w, o) : o->count * (size_t)w->nranks;
}

static int times_of(const struct world *w, const struct one *o)
{
    return o->op == ncclAvg && o->type->type == ncclFloat32 ? w->nranks : 1;
}

static void check(struct world *w, const struct one *o, uint64_t seed, const uint8_t *have, const char *what)
{
    const size_t bytes = got(w, o) * o->type->bytes, first = w->all ? 0 : (size_t)w->rank * o->count;
    uint8_t *want = malloc(bytes);
    for (size_t i = 0; i < got(w, o); i++)
        put_value(o->type, want, i, expected(seed, times_of(w, o), w->nranks, o->op, first + i));
    size_t i = 0;
    while (i < bytes && have[i] == want[i])
        i++;
    EXPECT(i == bytes, "rank %d of %d: %s: %s, %zu elements, operation %d: byte %zu is %#x, expected %#x", w->rank,
           w->nranks, what, o->type->name, got(w, o), (int)o->op, i, have[i], want[i]);
    free(want);
}

/* Three times with other data, back to back. */
static void call(struct world *w, const struct one *o, const char *what)
{
    enum { TIMES = 3 };
    const size_t part = got(w, o) * o->type->bytes, all = sent(w, o) * o->type->bytes;
    uint8_t *send, *recv, *in, *out;
    CUDA(cudaMalloc((void **)&send, all));
    CUDA(cudaMalloc((void **)&recv, part));
    CUDA(cudaMallocHost((void **)&in, all * TIMES));
    CUDA(cudaMallocHost((void **)&out, part * TIMES));
    uint8_t *to = !o->in_place ? recv : w->all ? send : send + part * (size_t)w->rank;
    const uint64_t seed = ++w->drawn * TIMES;
    for (int n = 0; n < TIMES; n++) {
        for (size_t i = 0; i < sent(w, o); i++)
            put_value(o->type, in + all * (size_t)n, i, value_of(seed + (uint64_t)n, times_of(w, o), w->rank, i));
        CUDA(cudaMemsetAsync(recv, POISON, part, w->s));
        CUDA(cudaMemcpyAsync(send, in + all * (size_t)n, all, cudaMemcpyHostToDevice, w->s));
        if (w->all)
            NCCL(ncclAllReduce(send, to, got(w, o), o->type->type, o->op, w->comm, w->s));
        else
            NCCL(ncclReduceScatter(send, to, o->count, o->type->type, o->op, w->comm, w->s));
        CUDA(cudaMemcpyAsync(out + part * (size_t)n, to, part, cudaMemcpyDeviceToHost, w->s));
    }
    CUDA(cudaStreamSynchronize(w->s));
    for (int n = 0; n < TIMES; n++)
        check(w, o, seed + (uint64_t)n, out + part * (size_t)n, what);
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
    CUDA(cudaFreeHost(in));
    CUDA(cudaFreeHost(out));
}

static void sizes(struct world *w, const struct scatter_case *c)
{
    static const size_t counts[] = {1, 2, 3, 7, 8, 15, 17, 1000, 1023, 4099, 16384, 65537};
    for (int t = 0; t < LENGTH(float_types); t++)
        for (int i = 0; i < LENGTH(counts); i++)
            for (int way = 0; way < 4; way++) {
                const struct one o = {&float_types[t], way & 1 ? ncclAvg : ncclSum, counts[i], way & 2, 0};
                call(w, &o, c->name);
            }
}

/* As many elements as no number of ranks divides, so that the last shards are shorter, or empty. */
static void uneven(struct world *w, const struct scatter_case *c)
{
    static const size_t counts[] = {0, 1, 2, 5, 9, 13, 24, 600, 4097, 30001};
    for (int t = 0; w->all && t < LENGTH(float_types); t++)
        for (int i = 0; i < LENGTH(counts); i++)
            for (int way = 0; way < 4; way++) {
                const struct one o = {&float_types[t], way & 1 ? ncclAvg : ncclSum, counts[i], way & 2,
                                      1 + (size_t)t * 3};
                call(w, &o, c->name);
            }
}

static void megabytes(struct world *w, const struct scatter_case *c)
{
    static const size_t counts[] = {(1 << 19) + 3, (1 << 18) - 1};
    for (int t = 0; t < LENGTH(float_types); t++)
        for (int i = 0; i < LENGTH(counts); i++) {
            const struct one o = {&float_types[t], t ? ncclSum : ncclAvg, counts[i], i, 0};
            call(w, &o, c->name);
        }
}

static void empty(struct world *w, const struct scatter_case *c)
{
    NCCL(world_reduce(w, w->workspace, w->workspace, 0, ncclBfloat16, ncclSum, w->comm, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    const struct one o = {&float_types[0], ncclSum, 100, false, 0};
    call(w, &o, c->name);
}

/* Many calls, of which the test makes very many (scatter_far), and then none for longer than calls may hang. */
static void far(struct world *w, const struct scatter_case *c)
{
    const struct one o = {&float_types[2], ncclSum, 4099, false, 0};
    for (int i = 0; i < 8; i++) {
        call(w, &o, c->name);
        sleep_ms(500);
    }
    ncclResult_t e = ncclInternalError;
    NCCL(ncclCommGetAsyncError(w->comm, &e));
    EXPECT(e == ncclSuccess, "rank %d: the communicator has failed: %d", w->rank, (int)e);
}

/* What slipring leaves to NCCL. */
static void others(struct world *w, const struct scatter_case *c)
{
    static const ncclRedOp_t ops[] = {ncclMax, ncclMin, ncclProd};
    for (int t = 0; t < LENGTH(other_types); t++)
        for (int i = 0; i < 1 + LENGTH(ops); i++) {
            const struct one o = {&other_types[t], i ? ops[i - 1] : ncclSum, 999, i & 1, 0};
            call(w, &o, c->name);
        }
    for (int t = 0; t < LENGTH(float_types); t++)
        for (int i = 0; i < LENGTH(ops); i++) {
            const struct one o = {&float_types[t], ops[i], 1001, i & 1, 0};
            call(w, &o, c->name);
        }
}

/* More than two slots hold (the test sets small ones), beside what fits. */
static void beyond(struct world *w, const struct scatter_case *c)
{
    const struct one o = {&float_types[0], ncclSum, (256 << 10) + 1, false, 0};
    call(w, &o, c->name);
}

static void beyond_beside(struct world *w, const struct scatter_case *c)
{
    for (int i = 0; i < 4; i++) {
        const struct one o = {&float_types[i % 3], ncclSum, i & 1 ? (256 << 10) + 1 : 700, false, 0};
        call(w, &o, c->name);
    }
}

/* Sums that leave the range of fp16 on the way, and come back. */
static void overflow(struct world *w, const struct scatter_case *c)
{
    enum { COUNT = 500 };
    uint16_t host[COUNT * MOST_RANKS], *send, *recv;
    const float large = w->rank == w->nranks - 1 ? -60000 : w->rank < 2 ? 60000 : 0;
    for (int i = 0; i < COUNT * w->nranks; i++)
        host[i] = f32_to_f16(large);
    CUDA(cudaMalloc((void **)&send, sizeof host));
    CUDA(cudaMalloc((void **)&recv, sizeof host));
    to_device(send, host, COUNT * 2 * (size_t)w->nranks);
    NCCL(world_reduce(w, send, recv, COUNT, ncclFloat16, ncclSum, w->comm, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaMemcpy(host, recv, COUNT * 2, cudaMemcpyDeviceToHost));
    const float want = w->nranks == 2 ? 0 : 60000;
    for (int i = 0; i < COUNT; i++)
        EXPECT(f16_to_f32(host[i]) == want, "rank %d: %s: element %d is %g", w->rank, c->name, i,
               (double)f16_to_f32(host[i]));
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
}

const struct scatter_case plain_cases[] = {{.name = "sizes", .list = "plain", .body = sizes},
                                           {.name = "megabytes", .list = "plain", .body = megabytes},
                                           {.name = "uneven", .list = "all-sizes", .body = uneven},
                                           {.name = "empty", .list = "plain", .body = empty},
                                           {.name = "overflow", .list = "plain", .body = overflow, .ranks = 3},
                                           {.name = "others", .list = "nccl", .body = others},
                                           {.name = "beyond", .list = "beyond", .body = beyond},
                                           {.name = "beyond-beside", .list = "beyond-beside", .body = beyond_beside},
                                           {.name = "plain-far", .list = "far", .body = far},
                                           {.name = NULL}};
