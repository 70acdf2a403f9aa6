/* SPDX-License-Identifier: Apache-2.0 */
/* Groups behind the gather and around it. What a group does not touch it leaves pending, so a GEMM behind the group is
 * still fused; what it touches, it sees. */
#include "order.h"

#include <stdlib.h>
#include <string.h>

/* A group of one operation of NCCL, as frameworks make them, on another communicator. */
static void reduce_in_group(struct look *l, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(l->side, l->side, 64, ncclUint8, ncclMax, l->comm2, stream));
    NCCL(ncclGroupEnd());
}

static void gemm_then_see(struct look *l, cudaStream_t stream)
{
    gemm_identity(l, l->g.recv, stream);
    see(l, l->side, stream);
}

static void beside(struct look *l)
{
    reduce_in_group(l, l->third);
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->s);
}

/* The same between an event and those who wait for it. NCCL records events of its own, as the group has two streams. */
static void beside_event(struct look *l)
{
    cudaStream_t fourth;
    CUDA(cudaStreamCreateWithFlags(&fourth, cudaStreamNonBlocking));
    CUDA(cudaEventRecord(l->event, l->s));
    NCCL(ncclGroupStart());
    reduce_in_group(l, l->third);
    reduce_in_group(l, fourth);
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    reduce_in_group(l, l->third);
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->other);
    CUDA(cudaStreamDestroy(fourth));
}

/* A gather that is too small for the ring, not in a group. */
static void beside_passed(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    NCCL(ncclAllGather(l->side, l->side + 64, 64, ncclUint8, l->comm2, l->third));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->other);
}

static void broadcast_in_group(struct look *l, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, stream));
    NCCL(ncclGroupEnd());
    see(l, l->side, stream);
}

static void on_its_stream(struct look *l)
{
    broadcast_in_group(l, l->s);
}

/* By the name that is not hooked: only the driver's calls show what it does. */
static void unhooked(struct look *l)
{
    NCCL(ncclGroupStart());
    NCCL(pncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, l->s));
    NCCL(ncclGroupEnd());
    see(l, l->side, l->s);
}

/* A stream that waits for the legacy default stream. */
static void on_blocking(struct look *l)
{
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    broadcast_in_group(l, blocking);
    CUDA(cudaStreamDestroy(blocking));
}

/* Both in one group: the stream that was told, and one that was not. */
static void told_and_not(struct look *l)
{
    uint8_t *few;
    CUDA(cudaMalloc((void **)&few, 64));
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(few, few, 64, ncclUint8, ncclMax, l->comm2, l->third));
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, l->other));
    NCCL(ncclGroupEnd());
    see(l, l->side, l->third);
    CUDA(cudaFree(few));
}

/* ---- gathers in a group, after the program's first one, which is over ---- */

/* Two gathers of one group: `first` on a stream and a communicator, then the case's on l->s. */
struct pair {
    struct gather first;
    uint64_t seed;
};

static void open_pair(struct look *l, struct pair *p, cudaStream_t stream)
{
    CUDA(cudaDeviceSynchronize());
    gather_alloc(&p->first, l->g.rank, l->g.nranks, SHARD);
    p->first.floats = true;
    p->seed = l->seed + 100;
    gather_load(&p->first, p->seed, stream);
    gather_load(&l->g, l->seed, l->s);
    CUDA(cudaDeviceSynchronize());
    if (l->late)
        hold(l->s, 40);
}

static void call_pair(struct look *l, struct pair *p, ncclComm_t comm, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    gather_call(&p->first, comm, stream);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
}

static void close_pair(struct pair *p, cudaStream_t stream)
{
    gather_check(&p->first, p->seed, stream, "the first gather of a group");
    gather_free(&p->first);
}

/* The last gather of a communicator in the group is the GEMM's, on its stream or on the other one of the group. */
static void last_on(struct look *l, cudaStream_t first, cudaStream_t gemm)
{
    struct pair p;
    open_pair(l, &p, first);
    call_pair(l, &p, l->comm, first);
    gemm_identity(l, l->g.recv, gemm);
    close_pair(&p, gemm);
    see(l, l->side, gemm);
}

static void last_same_stream(struct look *l)
{
    last_on(l, l->s, l->s);
}

static void last_other_stream(struct look *l)
{
    last_on(l, l->third, l->s);
}

static void last_by_partner(struct look *l)
{
    last_on(l, l->third, l->third);
}

/* ---- each gather of a group waits for its own GEMM ---- */

/* Of both on `stream`, in either order. The second GEMM must not be held up by, nor see too early, what the first has
 * waited for. On another stream than the group's it has been told by an event. */
static void both_on(struct look *l, cudaStream_t stream, bool first_first)
{
    struct pair p;
    struct gather product;
    open_pair(l, &p, l->s);
    product = p.first;
    CUDA(cudaMalloc((void **)&product.recv, l->all));
    call_pair(l, &p, l->comm, l->s);
    if (stream != l->s) {
        CUDA(cudaEventRecord(l->event, l->s));
        CUDA(cudaStreamWaitEvent(stream, l->event, 0));
    }
    for (int i = 0; i < 2; i++)
        if ((i == 0) == first_first)
            gemm_identity_to(l, p.first.recv, product.recv, stream);
        else
            gemm_identity(l, l->g.recv, stream);
    gather_check(&product, p.seed, stream, "the product of a group's first gather");
    see(l, l->side, stream);
    CUDA(cudaFree(product.recv));
    close_pair(&p, stream);
}

static void each_first(struct look *l)
{
    both_on(l, l->s, true);
}

static void each_last(struct look *l)
{
    both_on(l, l->s, false);
}

static void each_told(struct look *l)
{
    both_on(l, l->other, true);
}

/* Two GEMMs of the group's first gather: the other one runs whole, and the second gather stays pending. */
static void first_twice(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->s);
    call_pair(l, &p, l->comm, l->s);
    gemm_identity(l, p.first.recv, l->s);
    gemm_identity(l, p.first.recv, l->s);
    struct gather product = p.first;
    product.recv = l->side;
    gather_check(&product, p.seed, l->s, "the second product of a group's first gather");
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
    close_pair(&p, l->s);
}

/* The first one's GEMM writes what the second one sends: peers have to have read it. */
static void first_writes_second(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->s);
    call_pair(l, &p, l->comm, l->s);
    const float alpha = 1, beta = 0;
    BLAS(cublasSetStream(l->blas, l->s));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, (int)(SHARD / sizeof(float) / GEMM_K), GEMM_K, &alpha,
                     l->one, GEMM_K, (const float *)(const void *)p.first.recv, GEMM_K, &beta,
                     (float *)(void *)l->g.send, GEMM_K));
    see(l, l->g.recv, l->s);
    close_pair(&p, l->s);
}

/* What overtakes the second gather reads the first, all of it or the last rank's shard, and is no GEMM that can be cut. */
static void first_in_part(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->s);
    call_pair(l, &p, l->comm, l->s);
    const float alpha = 1, beta = 0;
    const uint8_t *last = p.first.recv + SHARD * (size_t)(l->g.nranks - 1);
    BLAS(cublasSetStream(l->blas, l->s));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, (int)(SHARD / sizeof(float) / GEMM_K), GEMM_K, &alpha,
                     l->one, GEMM_K, (const float *)(const void *)last, GEMM_K, &beta, (float *)(void *)l->side,
                     GEMM_K));
    uint8_t *host = malloc(SHARD), *want = malloc(SHARD);
    shard_fill(want, SHARD, p.seed, l->g.nranks - 1, true);
    CUDA(cudaMemcpyAsync(host, l->side, SHARD, cudaMemcpyDeviceToHost, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    if (memcmp(host, want, SHARD))
        wrong("rank %d: a product of the last shard of a group's first gather", l->g.rank);
    free(host);
    free(want);
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
    close_pair(&p, l->s);
}

/* A GEMM that could be cut writes where the second one receives: that has to be over. */
static void first_into_second(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->s);
    call_pair(l, &p, l->comm, l->s);
    gemm_identity_to(l, p.first.recv, l->g.recv, l->s);
    gather_check(&l->g, p.seed, l->s, "a product over a group's second gather");
    gather_call(&l->g, l->comm, l->s);
    see(l, l->g.recv, l->s);
    close_pair(&p, l->s);
}

/* The GEMM consumes the second gather, and reads the first as well, as of scale factors: that has to be there before the
 * first part. */
static void second_by_first(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->s);
    if (l->g.rank == 0)
        CUDA(cudaMemcpyAsync(p.first.send, l->one, GEMM_K * GEMM_K * sizeof(float), cudaMemcpyDeviceToDevice, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    call_pair(l, &p, l->comm, l->s);
    float *one = l->one;
    l->one = (float *)(void *)p.first.recv;
    gemm_identity(l, l->g.recv, l->s);
    l->one = one;
    see(l, l->side, l->s);
    gather_free(&p.first);
}

/* More gathers than are kept apart. */
static void many_gathers(struct look *l)
{
    enum { GATHERS = 18 };
    struct pair p[GATHERS];
    for (int i = 0; i < GATHERS; i++)
        open_pair(l, &p[i], l->s);
    NCCL(ncclGroupStart());
    for (int i = 0; i < GATHERS; i++)
        gather_call(&p[i].first, l->comm, l->s);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < GATHERS; i++)
        gemm_identity(l, p[i].first.recv, l->s);
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
    for (int i = 0; i < GATHERS; i++)
        close_pair(&p[i], l->s);
}

/* The other stream of the group looks. */
static void partner_sees(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->third);
    call_pair(l, &p, l->comm, l->third);
    see(l, l->g.recv, l->third);
    close_pair(&p, l->s);
}

/* Of another stream that an event of the partner has told. */
static void partner_tells(struct look *l)
{
    struct pair p;
    open_pair(l, &p, l->third);
    call_pair(l, &p, l->comm, l->third);
    CUDA(cudaEventRecord(l->event, l->third));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    see(l, l->g.recv, l->other);
    close_pair(&p, l->other);
}

/* NCCL's operation on another stream of the gather's communicator, in the gather's group: that stream sees both. */
static void partner_of_nccl(struct look *l)
{
    uint8_t *few;
    struct pair p;
    CUDA(cudaMalloc((void **)&few, 64));
    open_pair(l, &p, l->third);
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(few, few, 64, ncclUint8, ncclMax, l->comm, l->third));
    gather_call(&p.first, l->comm, l->s);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
    see(l, l->g.recv, l->third);
    close_pair(&p, l->third);
    CUDA(cudaFree(few));
}

/* More streams than slipring remembers. */
static void many_partners(struct look *l)
{
    enum { STREAMS = 12 };
    cudaStream_t stream[STREAMS];
    uint8_t *few;
    struct pair p;
    CUDA(cudaMalloc((void **)&few, STREAMS * 64));
    open_pair(l, &p, l->s);
    for (int i = 0; i < STREAMS; i++)
        CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    NCCL(ncclGroupStart());
    for (int i = 0; i < STREAMS; i++)
        NCCL(ncclAllReduce(few + i * 64, few + i * 64, 64, ncclUint8, ncclMax, l->comm, stream[i]));
    gather_call(&p.first, l->comm, l->s);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
    for (int i = 0; i < STREAMS; i++)
        gather_check(&l->g, l->seed, stream[i], "one of many streams of a group");
    close_pair(&p, l->s);
    see(l, l->g.recv, stream[STREAMS - 1]);
    for (int i = 0; i < STREAMS; i++)
        CUDA(cudaStreamDestroy(stream[i]));
    CUDA(cudaFree(few));
}

const struct order_case order_group_cases[] = {
    {.name = "group-beside", .look = beside, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-beside-event", .look = beside_event, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-beside-passed", .look = beside_passed, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-on-its-stream", .look = on_its_stream, .two_comms = true},
    {.name = "group-unhooked", .look = unhooked, .two_comms = true},
    {.name = "group-on-blocking", .look = on_blocking, .stream = STREAM_LEGACY, .two_comms = true},
    {.name = "group-told-and-not", .look = told_and_not, .two_comms = true},
    {.name = "group-last", .look = last_same_stream, .floats = true, .quiet = true},
    {.name = "group-last-other", .look = last_other_stream, .floats = true, .quiet = true},
    {.name = "group-last-partner", .look = last_by_partner, .floats = true, .quiet = true},
    {.name = "group-each", .look = each_first, .floats = true, .quiet = true},
    {.name = "group-each-last", .look = each_last, .floats = true, .quiet = true},
    {.name = "group-each-told", .look = each_told, .floats = true, .quiet = true},
    {.name = "group-first-twice", .look = first_twice, .floats = true},
    {.name = "group-first-writes", .look = first_writes_second, .floats = true},
    {.name = "group-first-in-part", .look = first_in_part, .floats = true},
    {.name = "group-first-into-second", .look = first_into_second, .floats = true},
    {.name = "group-second-by-first", .look = second_by_first, .floats = true},
    {.name = "group-many", .look = many_gathers, .floats = true, .quiet = true},
    {.name = "group-partner-sees", .look = partner_sees, .floats = true},
    {.name = "group-partner-tells", .look = partner_tells, .floats = true},
    {.name = "group-partner-nccl", .look = partner_of_nccl, .floats = true},
    {.name = "group-many-partners", .look = many_partners, .floats = true},
    {.name = NULL},
};
