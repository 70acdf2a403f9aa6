/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose call sites are symmetric, or are not in one particular way.
 *
 *   sites RANKS ITERATIONS CASE [AT]
 *
 * An iteration gathers at three sites, the first two of one size; their buffers are allocated in the order recv 0, send
 * 0, recv 1, ... The last rank is the odd one:
 *
 *   steady       nobody is
 *   alike        nobody is, and all sites are of one size
 *   cycle        every buffer is freed and allocated anew around its call
 *   extra        it allocates one buffer more before the last receive buffer
 *   offset       its receive buffer of site 1 lies 256 bytes further in its block
 *   larger       its block for the receive buffer of site 0 is larger
 *   again        from iteration AT on it sends from new memory at site 1, every time
 *   once         at iteration AT its receive buffer of site 1 moves, once
 *   late         in iteration AT alone its receive buffer of site 1 is another one
 *   together     at iteration AT the receive buffers of site 0 move on all ranks
 *   flap         its receive buffer of site 0 lies 256 bytes further in two of four iterations
 *   many         an iteration has 70 sites, in one block
 *   in-place     all gathers are in place
 *   inner        an iteration is seven calls of site 0 and one of site 2
 *   phases       after iteration AT another phase begins: two sites of other sizes
 *   die          the last rank is gone after iteration AT
 *   ahead        the first rank makes all its calls before the others begin
 *   mixed        an iteration is a gather at site 0, a reduce-scatter of as many bytes, a gather at site 1, and a
 *                reduce-scatter in place
 *   reduced      an iteration is a gather at site 0, and an all-reduce in place
 *   two          a second communicator gathers once in an iteration, from the buffers of site 2
 */
#include <string.h>
#include <unistd.h>
#include "../memory/zero.h"

enum { SITES = 3, MANY = 70, MANY_STEP = 1024, SEED = 7, MOST = 64 << 10 };
static const size_t shards[] = {8 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10};

struct plan {
    const char *name;
    int iterations, at;
};

struct work {
    struct rank *r;
    const struct plan *plan;
    bool odd;
    struct gather g[LENGTH(shards)];
    ncclComm_t second;
    uint8_t *many, *usual;
    float *parts, *sum; /* of reduce-scatters */
};

static bool is(const struct work *w, const char *name)
{
    return strcmp(w->plan->name, name) == 0;
}

static uint8_t *memory(size_t bytes)
{
    void *p = NULL;
    CUDA(cudaMalloc(&p, bytes));
    return p;
}

static void make_buffers(struct work *w)
{
    int n = w->r->nranks;
    for (int i = 0; i < LENGTH(shards); i++) {
        struct gather *g = &w->g[i];
        zero_host(g, w->r, MOST);
        g->shard = shards[is(w, "alike") ? 0 : i];
        if (w->odd && is(w, "extra") && i == SITES - 1)
            memory(MOST);
        g->recv = memory(g->shard * (size_t)n + (w->odd && is(w, "larger") && i == 0 ? 4 << 20 : 256));
        g->send = memory(g->shard);
        if (w->odd && is(w, "offset") && i == 1)
            g->recv += 256;
        if (is(w, "in-place"))
            g->send = g->recv + (size_t)w->r->rank * g->shard;
    }
}

static void call(struct work *w, int i)
{
    if (is(w, "cycle"))
        zero_alloc(&w->g[i], 0);
    gather_call(&w->g[i], w->r->comm, w->r->stream);
    if (is(w, "cycle"))
        zero_free(&w->g[i]);
}

static void move_buffers(struct work *w, int iteration)
{
    if (w->odd && is(w, "again") && iteration >= w->plan->at)
        w->g[1].send = memory(MOST);
    if (w->odd && is(w, "flap") && iteration % 2 == 0 && iteration > 0)
        w->g[0].recv += iteration % 4 == 2 ? 256 : -256;
    if (w->odd && is(w, "late") && iteration == w->plan->at + 1)
        w->g[1].recv = w->usual;
    if (iteration != w->plan->at)
        return;
    w->usual = w->g[1].recv;
    if (w->odd && (is(w, "once") || is(w, "late")))
        w->g[1].recv = memory(MOST);
    if (is(w, "together"))
        w->g[0].recv = memory(MOST);
}

static void many(const struct work *w)
{
    for (int i = 0; i < MANY; i++) {
        struct gather g = w->g[0];
        g.shard = 64;
        g.recv = w->many + (size_t)i * MANY_STEP;
        gather_call(&g, w->r->comm, w->r->stream);
    }
}

static void mixed(struct work *w)
{
    const size_t count = shards[0] / sizeof(float);
    call(w, 0);
    NCCL(ncclReduceScatter(w->parts, w->sum, count, ncclFloat32, ncclSum, w->r->comm, w->r->stream));
    call(w, 1);
    NCCL(ncclReduceScatter(w->parts, w->parts + (size_t)w->r->rank * count, count, ncclFloat32, ncclSum, w->r->comm,
                           w->r->stream));
}

static void reduced(struct work *w)
{
    const size_t count = shards[0] / sizeof(float) * (size_t)w->r->nranks;
    call(w, 0);
    NCCL(ncclAllReduce(w->parts, w->parts, count, ncclFloat32, ncclSum, w->r->comm, w->r->stream));
}

static void iterate(struct work *w, int iteration)
{
    move_buffers(w, iteration);
    if (is(w, "many")) {
        many(w);
        return;
    }
    if (is(w, "inner")) {
        for (int i = 0; i < 7; i++)
            call(w, 0);
        call(w, 2);
        return;
    }
    if (is(w, "mixed") || is(w, "reduced")) {
        (is(w, "mixed") ? mixed : reduced)(w);
        return;
    }
    bool second = is(w, "phases") && iteration >= w->plan->at;
    for (int i = second ? SITES : 0; i < (second ? LENGTH(shards) : SITES); i++)
        call(w, i);
    if (is(w, "two"))
        gather_call(&w->g[2], w->second, w->r->stream);
}

/* All have all data; then one rank goes, and the others go on until they are told. */
static void die(struct work *w)
{
    ncclResult_t error = ncclSuccess;
    CUDA(cudaStreamSynchronize(w->r->stream));
    zero_barrier(w->r);
    if (w->odd) {
        sleep_ms(300); /* its log is written meanwhile, but for what there is always time for */
        _exit(0);
    }
    for (int i = 0; i < SITES; i++)
        if (ncclAllGather(w->g[i].send, w->g[i].recv, w->g[i].shard, ncclUint8, w->r->comm, w->r->stream))
            break;
    for (int i = 0; error == ncclSuccess && i < 500; i++) {
        sleep_ms(10);
        NCCL(ncclCommGetAsyncError(w->r->comm, &error));
    }
    EXPECT(error != ncclSuccess, "rank %d: nobody noticed that the peer died", w->r->rank);
    NCCL(ncclCommAbort(w->r->comm));
    exit(wrong_count() ? 1 : 0);
}

static void body(struct rank *r)
{
    struct work w = {.r = r, .plan = r->arg, .odd = r->rank == r->nranks - 1};
    rank_open(r);
    if (is(&w, "two"))
        NCCL(ncclCommSplit(r->comm, 0, r->rank, &w.second, NULL));
    make_buffers(&w);
    if (is(&w, "many"))
        w.many = memory((size_t)MANY * MANY_STEP);
    if (is(&w, "mixed") || is(&w, "reduced")) {
        w.parts = (float *)(void *)memory(shards[0] * (size_t)r->nranks);
        w.sum = (float *)(void *)memory(shards[0]);
        CUDA(cudaMemsetAsync(w.parts, 0, shards[0] * (size_t)r->nranks, r->stream));
    }
    bool exact = !is(&w, "cycle") && !is(&w, "in-place") && !is(&w, "again") && !is(&w, "many");
    for (int i = 0; i < LENGTH(shards); i++)
        gather_load(&w.g[i], SEED, r->stream);
    if (is(&w, "ahead") && r->rank > 0)
        zero_barrier(r);
    for (int i = 0; i < w.plan->iterations; i++) {
        if (is(&w, "die") && i == w.plan->at)
            die(&w);
        iterate(&w, i);
    }
    if (is(&w, "ahead") && r->rank == 0)
        zero_barrier(r);
    if (exact)
        gather_check(&w.g[0], SEED, r->stream, w.plan->name);
    if (is(&w, "two"))
        NCCL(ncclCommDestroy(w.second));
    if (!getenv("SITES_NO_DESTROY"))
        rank_close(r);
    else
        CUDA(cudaStreamSynchronize(r->stream));
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct plan plan = {.name = argv[3], .iterations = atoi(argv[2]), .at = argc > 4 ? atoi(argv[4]) : -1};
    return zero_run(atoi(argv[1]), 60, argv, body, &plan);
}
