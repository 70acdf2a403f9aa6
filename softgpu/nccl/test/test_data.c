/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives move and reduce the right data. */
#include "../../blas/float16.h"
#include "ranks.h"

#include <criterion/criterion.h>

/* The largest goes through the four slots of a channel (../block.h) and begins again. */
static const size_t sizes[] = {0, 1, 3, 4096, (4 * 128 << 10) + 5};
#define NSIZES (sizeof sizes / sizeof *sizes)

static void sync_stream(struct rank *r)
{
    OK(r->cu.cuStreamSynchronize(r->stream));
}

static void all_gather(struct rank *r, size_t count, size_t esz, ncclDataType_t type, int in_place)
{
    size_t bytes = count * esz;
    CUdeviceptr recv = device_bytes(r, bytes * (size_t)r->nranks, 99), send = recv + bytes * (size_t)r->rank;
    if (!in_place)
        send = device_bytes(r, bytes, (unsigned)r->rank);
    unsigned char *mine = malloc(bytes + 1);
    fill_bytes(mine, bytes, (unsigned)r->rank);
    if (bytes)
        OK(r->cu.cuMemcpyHtoD(send, mine, bytes));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(ncclAllGather((void *)send, (void *)recv, count, type, r->comm, r->stream));
    sync_stream(r);
    for (int p = 0; p < r->nranks; p++)
        CHECK(same_bytes(r, recv + bytes * (size_t)p, bytes, (unsigned)p));
    free(mine);
    OK(r->cu.cuMemFree(recv));
    if (!in_place)
        OK(r->cu.cuMemFree(send));
}

static void gather_sizes(struct rank *r)
{
    for (size_t i = 0; i < NSIZES; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            all_gather(r, sizes[i], 1, ncclInt8, in_place);
            all_gather(r, sizes[i], 4, ncclFloat32, in_place);
            all_gather(r, sizes[i], 2, ncclBfloat16, in_place);
            all_gather(r, sizes[i], 1, ncclFloat8e4m3, in_place);
        }
}

Test(data, all_gather)
{
    for (int n = 1; n <= 4; n++)
        cr_expect_eq(run_ranks(n, 1, gather_sizes), 0, "%d ranks", n);
}

/* Rank r's element i is r + 1 + i % 3: sums, products and averages stay small integers. */
static int value(int rank, size_t i)
{
    return rank + 1 + (int)(i % 3);
}

static double expected(ncclRedOp_t op, int nranks, size_t i)
{
    double acc = value(0, i), sum = acc;
    for (int r = 1; r < nranks; r++) {
        double v = value(r, i);
        sum += v;
        acc = op == ncclProd ? acc * v : op == ncclMax ? (v > acc ? v : acc) : op == ncclMin ? (v < acc ? v : acc) : 0;
    }
    return op == ncclSum ? sum : op == ncclAvg ? sum / nranks : acc;
}

static void put_value(ncclDataType_t type, void *p, size_t i, double v)
{
    switch (type) {
    case ncclFloat32:
        ((float *)p)[i] = (float)v;
        break;
    case ncclFloat64:
        ((double *)p)[i] = v;
        break;
    case ncclInt32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case ncclUint64:
        ((uint64_t *)p)[i] = (uint64_t)v;
        break;
    case ncclInt8:
        ((int8_t *)p)[i] = (int8_t)v;
        break;
    case ncclFloat16:
        ((uint16_t *)p)[i] = f32_to_f16((float)v);
        break;
    default: /* bf16 */
        ((uint16_t *)p)[i] = f32_to_bf16((float)v);
    }
}

static const struct {
    ncclDataType_t type;
    size_t esz;
} types[] = {{ncclFloat32, 4}, {ncclFloat64, 8},  {ncclInt32, 4},  {ncclUint64, 8},
             {ncclInt8, 1},    {ncclBfloat16, 2}, {ncclFloat16, 2}};
#define NTYPES (sizeof types / sizeof *types)

struct reduction {
    struct rank *r;
    size_t t, count;
    ncclRedOp_t op;
    CUdeviceptr send, recv;
    size_t send_count;
};

static struct reduction reduction_new(struct rank *r, size_t t, size_t count, ncclRedOp_t op, size_t send_count)
{
    struct reduction d = {r, t, count, op, 0, 0, send_count};
    char *host = malloc(send_count * types[t].esz);
    for (size_t i = 0; i < send_count; i++)
        put_value(types[t].type, host, i, value(r->rank, i));
    OK(r->cu.cuMemAlloc(&d.send, send_count * types[t].esz));
    OK(r->cu.cuMemAlloc(&d.recv, count * types[t].esz));
    OK(r->cu.cuMemcpyHtoD(d.send, host, send_count * types[t].esz));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    free(host);
    return d;
}

static int is_integer(ncclDataType_t type)
{
    return type == ncclInt32 || type == ncclUint64 || type == ncclInt8;
}

/* Elements [at, at + count) of the reduced vector are in `mem`. */
static void check_reduced(const struct reduction *d, CUdeviceptr mem, size_t at)
{
    size_t bytes = d->count * types[d->t].esz;
    char *want = malloc(bytes), *got = malloc(bytes);
    for (size_t i = 0; i < d->count; i++) {
        double v = expected(d->op, d->r->nranks, at + i);
        if (d->op == ncclAvg && is_integer(types[d->t].type))
            v = (double)(long)v;
        put_value(types[d->t].type, want, i, v);
    }
    sync_stream(d->r);
    OK(d->r->cu.cuMemcpyDtoH(got, mem, bytes));
    CHECK(!memcmp(want, got, bytes));
    free(want);
    free(got);
}

static void reduction_free(struct reduction *d)
{
    OK(d->r->cu.cuMemFree(d->send));
    OK(d->r->cu.cuMemFree(d->recv));
}

static void reduce_all_ways(struct rank *r, size_t t, size_t count, ncclRedOp_t op)
{
    ncclDataType_t type = types[t].type;
    struct reduction d = reduction_new(r, t, count, op, count);
    OK(ncclAllReduce((void *)d.send, (void *)d.recv, count, type, op, r->comm, r->stream));
    check_reduced(&d, d.recv, 0);
    OK(ncclReduce((void *)d.send, (void *)d.recv, count, type, op, r->nranks - 1, r->comm, r->stream));
    if (r->rank == r->nranks - 1)
        check_reduced(&d, d.recv, 0);
    OK(ncclAllReduce((void *)d.send, (void *)d.send, count, type, op, r->comm, r->stream));
    check_reduced(&d, d.send, 0);
    reduction_free(&d);
    d = reduction_new(r, t, count, op, count * (size_t)r->nranks);
    OK(ncclReduceScatter((void *)d.send, (void *)d.recv, count, type, op, r->comm, r->stream));
    check_reduced(&d, d.recv, count * (size_t)r->rank);
    reduction_free(&d);
}

static void reductions(struct rank *r)
{
    static const size_t counts[] = {1, 3, 1000, 70001};
    for (size_t t = 0; t < NTYPES; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (ncclRedOp_t op = ncclSum; op < ncclNumOps; op++)
                reduce_all_ways(r, t, counts[c], op);
}

Test(data, reductions)
{
    for (int n = 2; n <= 4; n++)
        cr_expect_eq(run_ranks(n, 1, reductions), 0, "%d ranks", n);
}

/* Block b of rank r's buffer has seed 16 * r + b. */
static CUdeviceptr blocks(struct rank *r, size_t bytes)
{
    size_t n = (size_t)r->nranks;
    CUdeviceptr mem;
    unsigned char *host = malloc(bytes * n);
    for (size_t b = 0; b < n; b++)
        fill_bytes(host + b * bytes, bytes, 16 * (unsigned)r->rank + (unsigned)b);
    OK(r->cu.cuMemAlloc(&mem, bytes * n));
    OK(r->cu.cuMemcpyHtoD(mem, host, bytes * n));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    free(host);
    return mem;
}

static void rooted(struct rank *r, size_t bytes, int root)
{
    unsigned me = (unsigned)r->rank;
    CUdeviceptr send = blocks(r, bytes), recv = blocks(r, bytes);
    OK(ncclBroadcast((void *)send, (void *)recv, bytes, ncclUint8, root, r->comm, r->stream));
    sync_stream(r);
    CHECK(same_bytes(r, recv, bytes, 16 * (unsigned)root));
    OK(ncclScatter((void *)send, (void *)recv, bytes, ncclUint8, root, r->comm, r->stream));
    sync_stream(r);
    CHECK(same_bytes(r, recv, bytes, 16 * (unsigned)root + me));
    OK(ncclGather((void *)send, (void *)recv, bytes, ncclUint8, root, r->comm, r->stream));
    sync_stream(r);
    for (int p = 0; r->rank == root && p < r->nranks; p++)
        CHECK(same_bytes(r, recv + bytes * (size_t)p, bytes, 16 * (unsigned)p));
    OK(ncclAlltoAll((void *)send, (void *)recv, bytes, ncclUint8, r->comm, r->stream));
    sync_stream(r);
    for (int p = 0; p < r->nranks; p++)
        CHECK(same_bytes(r, recv + bytes * (size_t)p, bytes, 16 * (unsigned)p + me));
    OK(ncclBcast((void *)send, bytes, ncclUint8, root, r->comm, r->stream));
    sync_stream(r);
    CHECK(same_bytes(r, send, bytes, 16 * (unsigned)root));
    OK(r->cu.cuMemFree(send));
    OK(r->cu.cuMemFree(recv));
}

static void rooted_sizes(struct rank *r)
{
    for (int root = 0; root < r->nranks; root++)
        for (size_t i = 1; i < NSIZES; i++)
            rooted(r, sizes[i], root);
}

Test(data, rooted_and_all_to_all)
{
    cr_expect_eq(run_ranks(3, 1, rooted_sizes), 0);
}

/* Everybody sends to everybody, itself included, far more than a channel holds, in an order that would lock up if the
 * transfers of a group ran one after another. */
static void exchange_in_group(struct rank *r)
{
    const size_t bytes = 3u << 20;
    CUdeviceptr send = blocks(r, bytes), recv = blocks(r, bytes);
    OK(ncclGroupStart());
    for (int p = 0; p < r->nranks; p++)
        OK(ncclSend((void *)(send + bytes * (size_t)p), bytes, ncclUint8, p, r->comm, r->stream));
    for (int p = 0; p < r->nranks; p++)
        OK(ncclRecv((void *)(recv + bytes * (size_t)p), bytes, ncclUint8, p, r->comm, r->stream));
    OK(ncclGroupEnd());
    sync_stream(r);
    for (int p = 0; p < r->nranks; p++)
        CHECK(same_bytes(r, recv + bytes * (size_t)p, bytes, 16 * (unsigned)p + (unsigned)r->rank));
}

Test(data, sends_and_receives_in_a_group)
{
    cr_expect_eq(run_ranks(4, 1, exchange_in_group), 0);
}

/* Several messages between the same two ranks in one group match in the order of the calls. */
static void several_in_group(struct rank *r)
{
    static const size_t bytes[] = {900000, 5, 700001};
    CUdeviceptr send[3], recv[3];
    for (unsigned i = 0; i < 3; i++) {
        send[i] = device_bytes(r, bytes[i], 10 * (unsigned)r->rank + i);
        recv[i] = device_bytes(r, bytes[i], 99);
    }
    OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        OK(ncclSend((void *)send[i], bytes[i], ncclUint8, 1 - r->rank, r->comm, r->stream));
        OK(ncclRecv((void *)recv[i], bytes[i], ncclUint8, 1 - r->rank, r->comm, r->stream));
    }
    OK(ncclGroupEnd());
    sync_stream(r);
    for (unsigned i = 0; i < 3; i++)
        CHECK(same_bytes(r, recv[i], bytes[i], 10 * (unsigned)(1 - r->rank) + i));
}

Test(data, several_messages_to_one_peer_in_a_group)
{
    cr_expect_eq(run_ranks(2, 1, several_in_group), 0);
}

/* Messages that only their data tells apart must be taken in the order of the calls. Rank `grouped` has them all in one
 * group, so nearly all of its time goes into looking for one that can go on, which must be the first; the other rank
 * gives it the time by handling some one by one. */
static void ordered(struct rank *r, int grouped)
{
    enum { N = 8000, BYTES = 8 };
    const int alone = r->rank == grouped ? 0 : N / 20;
    CUdeviceptr mem = device_bytes(r, N * BYTES, r->rank ? 99 : 50);
    for (int i = 0; i < N; i++) {
        void *message = (char *)mem + (size_t)i * BYTES;
        if (i == alone)
            OK(ncclGroupStart());
        if (r->rank)
            OK(ncclRecv(message, BYTES, ncclUint8, 0, r->comm, r->stream));
        else
            OK(ncclSend(message, BYTES, ncclUint8, 1, r->comm, r->stream));
    }
    OK(ncclGroupEnd());
    sync_stream(r);
    CHECK(same_bytes(r, mem, N * BYTES, 50));
    OK(r->cu.cuMemFree(mem));
}

static void order_in_group(struct rank *r)
{
    for (int i = 0; i < 10; i++)
        ordered(r, i & 1);
}

Test(data, messages_of_a_group_keep_the_order_of_the_calls)
{
    cr_expect_eq(run_ranks(2, 1, order_in_group), 0);
}

static void ping_pong(struct rank *r)
{
    CUdeviceptr a = device_bytes(r, 5000, 7 + (unsigned)r->rank);
    for (int i = 0; i < 50; i++) {
        if ((i & 1) == r->rank)
            OK(ncclSend((void *)a, 5000, ncclUint8, 1 - r->rank, r->comm, r->stream));
        else
            OK(ncclRecv((void *)a, 5000, ncclUint8, 1 - r->rank, r->comm, r->stream));
    }
    sync_stream(r);
    CHECK(same_bytes(r, a, 5000, 7));
}

Test(data, send_and_receive_outside_of_groups)
{
    cr_expect_eq(run_ranks(2, 1, ping_pong), 0);
}

/* Beyond 4 GiB: the result has more than 2^32 bytes; pages that nobody writes cost no memory, so only edges differ. */
static void large_offsets(struct rank *r)
{
    const size_t bytes = (2ull << 30) + 4096 + 3;
    CUdeviceptr recv, mine;
    OK(r->cu.cuMemAlloc(&recv, 2 * bytes));
    mine = recv + bytes * (size_t)r->rank;
    unsigned char edge[64];
    fill_bytes(edge, sizeof edge, (unsigned)r->rank);
    OK(r->cu.cuMemcpyHtoD(mine, edge, sizeof edge));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(r->cu.cuMemcpyHtoD(mine + bytes - sizeof edge, edge, sizeof edge));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(ncclAllGather((void *)mine, (void *)recv, bytes, ncclUint8, r->comm, r->stream));
    sync_stream(r);
    for (int p = 0; p < 2; p++) {
        CHECK(same_bytes(r, recv + bytes * (size_t)p, sizeof edge, (unsigned)p));
        CHECK(same_bytes(r, recv + bytes * (size_t)(p + 1) - sizeof edge, sizeof edge, (unsigned)p));
    }
}

/* Writes 8 GiB of memory, so only where it is asked for. */
Test(data, more_than_4_gib)
{
    if (!getenv("SOFTGPU_TEST_LARGE"))
        cr_skip_test("set SOFTGPU_TEST_LARGE=1 to run it");
    setenv("SOFTGPU_MEM_BYTES", "1e10", 1);
    cr_expect_eq(run_ranks(2, 1, large_offsets), 0);
}

static void without_data(struct rank *r)
{
    CUdeviceptr recv;
    OK(r->cu.cuMemAlloc(&recv, 32ull << 30)); /* never touched */
    OK(ncclAllGather((void *)(recv + (16ull << 30) * (size_t)r->rank), (void *)recv, 16ull << 30, ncclUint8, r->comm,
                     r->stream));
    sync_stream(r);
}

/* SOFTGPU_COMPUTE=0: the kernels only meet; gathering 32 GiB must not take the memory. */
Test(data, without_data)
{
    setenv("SOFTGPU_COMPUTE", "0", 1);
    setenv("SOFTGPU_MEM_BYTES", "1e11", 1);
    cr_expect_eq(run_ranks(2, 1, without_data), 0);
}
