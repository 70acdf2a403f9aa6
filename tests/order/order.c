/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to look at a gather, right after it: the stream, events, other streams, other threads, the host. None of
 * them may see it before it is complete, and what follows it may overwrite `send`.
 *
 *   order CASE [RANKS]       CASE is a name of the tables below; "list" prints those in which a missing join
 * shows, "list-all" all of those and more, "list-base" all but those of events, "list-thread" those of threads,
 * "list-foreign" those that NCCL can not do
 *
 * In each round the stream of one rank (another in each round) stands still before its gather, so that for the others
 * everything that comes from that rank, or waits for that rank to have read, is late: whoever looks too early sees
 * poison.
 */
#include "order.h"

#include <string.h>

#define LATE_MS 40
#define ROUNDS 3

static const struct order_case *const tables[] = {order_host_cases,     order_stream_cases, order_send_cases,
                                                  order_event_cases,    order_comm_cases,   order_group_cases,
                                                  order_overtake_cases, order_small_cases,  order_context_cases,
                                                  order_thread_cases,   order_foreign_cases};

static const struct order_case *find(const char *name)
{
    for (int t = 0; t < LENGTH(tables); t++)
        for (const struct order_case *c = tables[t]; c->name; c++)
            if (!strcmp(c->name, name))
                return c;
    return NULL;
}

static int list(const char *which)
{
    const bool quiet = strcmp(which, "list"), events = strcmp(which, "list-base");
    const struct order_case *only = !strcmp(which, "list-thread")    ? order_thread_cases
                                    : !strcmp(which, "list-foreign") ? order_foreign_cases
                                                                     : NULL;
    for (int t = 0; t < LENGTH(tables); t++)
        for (const struct order_case *c = tables[t]; c->name; c++)
            if ((quiet || !c->quiet) && (events || tables[t] != order_event_cases) &&
                (only ? tables[t] == only : tables[t] != order_thread_cases && tables[t] != order_foreign_cases))
                puts(c->name);
    return 0;
}

void see(struct look *l, const void *device, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(l->seen, device, l->all, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void open_streams(struct look *l)
{
    switch (l->c->stream) {
    case STREAM_OWN:
        CUDA(cudaStreamCreateWithFlags(&l->s, cudaStreamNonBlocking));
        break;
    case STREAM_BLOCKING:
        CUDA(cudaStreamCreate(&l->s));
        break;
    case STREAM_LEGACY:
        l->s = 0;
        break;
    case STREAM_PER_THREAD:
        l->s = cudaStreamPerThread;
        break;
    case STREAM_GREEN:
    case STREAM_CREATED:
        l->s = contexts_stream(l->c->stream == STREAM_GREEN);
        break;
    }
    CUDA(cudaStreamCreateWithFlags(&l->other, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&l->third, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&l->event, cudaEventDisableTiming));
}

/* Where the data is gathered: device memory, or memory that the host can read without a CUDA call. */
static void open_memory(struct look *l, const struct rank *r)
{
    gather_alloc(&l->g, r->rank, r->nranks, SHARD);
    l->g.floats = l->c->floats;
    l->all = SHARD * (size_t)r->nranks;
    l->device_send = l->g.send;
    l->device_recv = l->g.recv;
    if (l->c->recv == RECV_MAPPED)
        CUDA(cudaHostAlloc((void **)&l->g.recv, l->all, cudaHostAllocMapped));
    else if (l->c->recv == RECV_MANAGED)
        CUDA(cudaMallocManaged((void **)&l->g.recv, l->all, cudaMemAttachGlobal));
    if (l->c->recv == RECV_CREATED) {
        l->g.send = contexts_memory(SHARD);
        l->g.recv = contexts_memory(l->all);
    }
    CUDA(cudaMalloc((void **)&l->side, l->all));
    CUDA(cudaMallocHost((void **)&l->seen, l->all));
    CUDA(cudaHostAlloc((void **)&l->flag, 64, cudaHostAllocMapped));
}

static void close_all(struct look *l)
{
    CUDA(cudaDeviceSynchronize());
    if (l->c->recv == RECV_MAPPED)
        CUDA(cudaFreeHost(l->g.recv));
    else if (l->c->recv == RECV_MANAGED)
        CUDA(cudaFree(l->g.recv));
    if (l->c->recv == RECV_CREATED) {
        CUDA(cudaFree(l->g.send));
        CUDA(cudaFree(l->g.recv));
    }
    l->g.send = l->device_send;
    l->g.recv = l->device_recv;
    gather_free(&l->g);
    CUDA(cudaFree(l->side));
    CUDA(cudaFreeHost(l->seen));
    CUDA(cudaFreeHost((void *)l->flag));
    CUDA(cudaEventDestroy(l->event));
    CUDA(cudaStreamDestroy(l->other));
    CUDA(cudaStreamDestroy(l->third));
    if (l->s && l->s != cudaStreamPerThread)
        CUDA(cudaStreamDestroy(l->s));
}

static void round_of(struct look *l, int round)
{
    l->seed = (uint64_t)round + 1;
    memset(l->seen, 0x11, l->all);
    *l->flag = 0;
    gather_load(&l->g, l->seed, l->s);
    if (l->c->before)
        l->c->before(l);
    CUDA(cudaDeviceSynchronize());
    l->late = round % l->g.nranks == l->g.rank;
    if (l->late)
        hold(l->s, LATE_MS);
    if (l->c->on_the_way)
        l->c->on_the_way(l);
    gather_call(&l->g, l->comm, l->s);
    l->c->look(l);
    bytes_check(&l->g, l->seen, l->seed, l->c->name);
    CUDA(cudaDeviceSynchronize());
}

static void body(struct rank *r)
{
    struct look l = {.c = r->arg};
    NCCL(ncclCommInitRank(&l.comm, r->nranks, r->id, r->rank));
    if (l.c->two_comms)
        NCCL(ncclCommSplit(l.comm, 0, r->rank, &l.comm2, NULL));
    if (l.c->stream >= STREAM_GREEN || l.c->recv == RECV_CREATED || !strncmp(l.c->name, "default-of", 10))
        contexts_open();
    open_streams(&l);
    open_memory(&l, r);
    if (l.c->floats)
        gemm_identity_open(&l);
    for (int round = 0; round < ROUNDS; round++)
        round_of(&l, round);
    if (l.c->floats)
        gemm_identity_close(&l);
    close_all(&l);
    if (l.comm2)
        NCCL(ncclCommDestroy(l.comm2));
    NCCL(ncclCommDestroy(l.comm));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strncmp(name, "list", 4))
        return list(name);
    const struct order_case *c = find(name);
    if (!c) {
        fprintf(stderr, "usage: order CASE [RANKS]\n");
        return 2;
    }
    return forms_run(argc > 2 ? atoi(argv[2]) : 2, 60, body, (void *)(uintptr_t)c);
}
