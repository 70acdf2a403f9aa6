/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose calls are measured (SLIPRING_TRACE): plain NCCL, with exact checks.
 *
 *   trace_calls RANKS CASE [ROUNDS]
 *
 *   mixed     all-gathers in place and not, of two sizes, on two streams and the legacy default one
 *   others    every other collective, once plain, once in a group, once captured; and all-gathers likewise
 *   split     all-gathers on two communicators
 *   flood     all ROUNDS all-gathers are enqueued while their stream stands still
 *   replays   a graph that holds a gather is launched ROUNDS times, and every fourth time the gather is called as well, while
 *             the stream stands still; then ROUNDS times one by one
 *   in-flight a graph is launched, and launched again behind something that lasts, when the communicator is destroyed
 *   leave     ends without destroying the communicator
 *   unfinished   destroys it while the stream that reads the gathers stands still
 *   abort     aborts it while gathers are in flight
 */
#include <string.h>
#include "../memory/zero.h"

#define SHARD 65536

struct plan {
    void (*run)(struct rank *r, struct gather *g, int rounds);
    int rounds;
};

static void mixed(struct rank *r, struct gather *g, int rounds)
{
    cudaStream_t other;
    CUDA(cudaStreamCreate(&other));
    for (int i = 0; i < rounds; i++) {
        cudaStream_t stream = i % 3 == 0 ? r->stream : i % 3 == 1 ? other : NULL;
        uint8_t *send = g->send;
        g->shard = i % 2 ? SHARD : SHARD / 4 + 12;
        gather_load(g, (uint64_t)i, stream);
        if (i % 4 == 3) {
            g->send = g->recv + (size_t)r->rank * g->shard;
            CUDA(cudaMemcpyAsync(g->send, send, g->shard, cudaMemcpyDeviceToDevice, stream));
        }
        CUDA(cudaStreamSynchronize(stream));
        gather_call(g, r->comm, stream);
        g->send = send;
        gather_check(g, (uint64_t)i, stream, "mixed");
    }
    CUDA(cudaStreamDestroy(other));
}

/* Every function once; each writes where no other one does, because the operations of a group have no order. `n` bytes
 * from and to each rank. */
static void call_all(struct rank *r, const uint8_t *in, uint8_t *out, cudaStream_t s)
{
    size_t n = SHARD / (size_t)r->nranks;
    int next = (r->rank + 1) % r->nranks, last = (r->rank + r->nranks - 1) % r->nranks;
    NCCL(ncclAllReduce(in, out, SHARD, ncclInt8, ncclSum, r->comm, s));
    NCCL(ncclReduce(in, out + SHARD, SHARD, ncclInt8, ncclSum, 0, r->comm, s));
    NCCL(ncclReduceScatter(in, out + 2 * SHARD, n, ncclInt8, ncclSum, r->comm, s));
    NCCL(ncclBroadcast(in, out + 3 * SHARD, SHARD, ncclInt8, 0, r->comm, s));
    NCCL(ncclBcast(out + 4 * SHARD, SHARD, ncclInt8, 0, r->comm, s));
    NCCL(ncclAlltoAll(in, out + 5 * SHARD, n, ncclInt8, r->comm, s));
    NCCL(ncclGather(in, out + 6 * SHARD, n, ncclInt8, 0, r->comm, s));
    NCCL(ncclScatter(in, out + 7 * SHARD, n, ncclInt8, 0, r->comm, s));
    if (r->rank % 2 == 0)
        NCCL(ncclSend(in, SHARD, ncclInt8, next, r->comm, s));
    else
        NCCL(ncclRecv(out + 8 * SHARD, SHARD, ncclInt8, last, r->comm, s));
    NCCL(ncclAllGather(in, out + 9 * SHARD, n, ncclInt8, r->comm, s));
}

static void others(struct rank *r, struct gather *g, int rounds)
{
    cudaGraph_t graph;
    uint8_t *out;
    CUDA(cudaMalloc((void **)&out, (size_t)10 * SHARD));
    for (int i = 0; i < rounds; i++)
        call_all(r, g->send, out, r->stream);
    NCCL(ncclGroupStart());
    call_all(r, g->send, out, r->stream);
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    call_all(r, g->send, out, r->stream);
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphDestroy(graph));
    zero_round(r, g, 1, "after a capture");
    CUDA(cudaFree(out));
}

static void split(struct rank *r, struct gather *g, int rounds)
{
    ncclComm_t comm = r->comm, half;
    NCCL(ncclCommSplit(comm, 0, r->nranks - r->rank, &half, NULL));
    for (int i = 0; i < rounds; i++) {
        r->comm = i % 2 ? half : comm;
        g->rank = i % 2 ? r->nranks - 1 - r->rank : r->rank;
        zero_round(r, g, (uint64_t)i, "split");
    }
    r->comm = comm;
    g->rank = r->rank;
    NCCL(ncclCommDestroy(half));
}

static void flood(struct rank *r, struct gather *g, int rounds)
{
    gather_load(g, 7, r->stream);
    hold(r->stream, 300);
    for (int i = 0; i < rounds; i++)
        gather_call(g, r->comm, r->stream);
    gather_check(g, 7, r->stream, "flood");
}

static void leave(struct rank *r, struct gather *g, int rounds)
{
    for (int i = 0; i < rounds; i++)
        zero_round(r, g, (uint64_t)i, "leave");
    zero_barrier(r);
    exit(wrong_count() ? 1 : 0);
}

static cudaGraphExec_t record(struct rank *r, struct gather *g)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    zero_round(r, g, 0, "before the capture");
    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    gather_call(g, r->comm, r->stream);
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void replays(struct rank *r, struct gather *g, int rounds)
{
    cudaGraphExec_t exec = record(r, g);
    gather_load(g, 7, r->stream);
    hold(r->stream, 300);
    for (int i = 0; i < rounds; i++) {
        CUDA(cudaGraphLaunch(exec, r->stream));
        if (i % 4 == 3)
            gather_call(g, r->comm, r->stream);
    }
    gather_check(g, 7, r->stream, "replays at once");
    for (int i = 0; i < rounds; i++) {
        gather_load(g, 8 + (uint64_t)i, r->stream);
        CUDA(cudaGraphLaunch(exec, r->stream));
        gather_check(g, 8 + (uint64_t)i, r->stream, "one by one");
    }
    CUDA(cudaGraphExecDestroy(exec));
}

static void in_flight(struct rank *r, struct gather *g, int rounds)
{
    cudaGraphExec_t exec = record(r, g);
    for (int i = 0; i < rounds; i++)
        CUDA(cudaGraphLaunch(exec, r->stream));
    hold(r->stream, 500);
    CUDA(cudaGraphLaunch(exec, r->stream));
    hold(r->stream, 500);
    NCCL(ncclCommDestroy(r->comm));
    r->comm = NULL;
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaGraphExecDestroy(exec));
}

/* The ring has done its part, but nobody has seen its last gather. */
static void unfinished(struct rank *r, struct gather *g, int rounds)
{
    for (int i = 0; i < rounds; i++)
        zero_round(r, g, (uint64_t)i, "unfinished");
    gather_load(g, 100, r->stream);
    CUDA(cudaStreamSynchronize(r->stream));
    gather_call(g, r->comm, r->stream);
    hold(r->stream, 500);
    gather_call(g, r->comm, r->stream);
}

static void abort_it(struct rank *r, struct gather *g, int rounds)
{
    for (int i = 0; i < rounds; i++)
        zero_round(r, g, (uint64_t)i, "before the abort");
    if (r->rank == 0)
        hold(r->stream, 400);
    gather_call(g, r->comm, r->stream);
    zero_barrier(r);
    NCCL(ncclCommAbort(r->comm));
    CUDA(cudaStreamSynchronize(r->stream));
    r->comm = NULL;
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g;
    rank_open(r);
    zero_host(&g, r, SHARD);
    zero_alloc(&g, 0);
    p->run(r, &g, p->rounds);
    if (r->comm)
        NCCL(ncclCommDestroy(r->comm));
    CUDA(cudaStreamSynchronize(r->stream));
    zero_free(&g);
}

static const struct {
    const char *name;
    void (*run)(struct rank *r, struct gather *g, int rounds);
} cases[] = {
    {"mixed", mixed},           {"others", others},  {"split", split},     {"flood", flood},         {"leave", leave},
    {"unfinished", unfinished}, {"abort", abort_it}, {"replays", replays}, {"in-flight", in_flight},
};

int main(int argc, char **argv)
{
    struct plan p = {.rounds = argc > 3 ? atoi(argv[3]) : 8};
    for (int i = 0; argc > 2 && i < LENGTH(cases); i++)
        if (!strcmp(cases[i].name, argv[2]))
            p.run = cases[i].run;
    if (!p.run) {
        fprintf(stderr, "usage: %s RANKS CASE [ROUNDS]\n", argv[0]);
        return 2;
    }
    return zero_run(atoi(argv[1]), 60, argv, body, &p);
}
