/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that waits in the driver for room in a stream's queue holds up no other thread's looks at streams and events,
 * its waits for events, nor the destruction of other streams: the stream is held until the other thread has made these.
 *
 *   full CASE [RANKS [ENTRIES]]   CASE: query, wait or destroy, what rank 0's other thread does; ENTRIES of a stream's
 *                                 queue, SOFTGPU_QUEUE
 *
 * Each round leaves another room in the queue, so that the thread waits in another of slipring's calls. */
#include "forms.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SHARD ((size_t)64 << 10)
#define ROUNDS 12
#define STUCK_MS 120 /* nothing is called any more; less shows less, and is not wrong */

struct world {
    struct gather g;
    ncclComm_t comm;
    cudaStream_t full, beside, spare; /* the held one; two that nothing holds up */
    cudaEvent_t event[2];             /* recorded on `full`, in turn */
    cudaEvent_t other, third;         /* on `beside`; on `spare` */
    int entries, gathers;
    _Atomic int calls; /* by the thread that fills the queue */
    _Atomic bool released;
};

static void CUDART_CB until_released(void *arg)
{
    struct world *w = arg;
    while (!atomic_load(&w->released))
        sleep_ms(1);
}

static void *fill(void *arg)
{
    struct world *w = arg;
    CUDA(cudaSetDevice(rank_device(w->g.rank)));
    for (int i = 0; i < w->gathers; i++) {
        gather_call(&w->g, w->comm, w->full);
        atomic_fetch_add(&w->calls, 1);
        CUDA(cudaEventRecord(w->event[i % 2], w->full));
        atomic_fetch_add(&w->calls, 1);
    }
    return NULL;
}

static void await_stuck(struct world *w)
{
    for (int seen = -1, now, ms = 0; ms < STUCK_MS; ms += 10, seen = now) {
        now = atomic_load(&w->calls);
        if (now != seen)
            ms = 0;
        sleep_ms(10);
    }
}

static void query(struct world *w)
{
    EXPECT(cudaStreamQuery(w->full) == cudaErrorNotReady, "a stream that is held is ready");
    EXPECT(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady, "so is the default stream, which waits for it");
    for (cudaError_t e; (e = cudaStreamQuery(w->beside)) != cudaSuccess; sleep_ms(1))
        EXPECT(e == cudaErrorNotReady, "cudaStreamQuery: %s", cudaGetErrorString(e));
    CUDA(cudaEventQuery(w->other));
    for (int i = 0; i < 2; i++)
        EXPECT(atomic_load(&w->calls) < 2 * (i + 1) || cudaEventQuery(w->event[i]) == cudaErrorNotReady,
               "what is behind a held stream is over");
}

/* What the streams hold, or follow, or wait for. */
static void wait(struct world *w)
{
    void *p;
    CUDA(cudaStreamWaitEvent(w->beside, w->third, 0));
    CUDA(cudaMallocAsync(&p, 4096, w->beside));
    CUDA(cudaFreeAsync(p, w->beside));
    for (int i = 0; i < 2; i++)
        CUDA(cudaStreamWaitEvent(w->beside, w->event[i], 0));
    CUDA(cudaStreamWaitEvent(w->spare, w->other, 0));
    CUDA(cudaStreamSynchronize(w->spare));
}

static void destroy(struct world *w)
{
    CUDA(cudaStreamDestroy(w->spare));
    CUDA(cudaStreamCreateWithFlags(&w->spare, cudaStreamNonBlocking));
}

static const struct {
    const char *name;
    void (*look)(struct world *w);
} cases[] = {{"query", query}, {"wait", wait}, {"destroy", destroy}};

/* The communicator's operations before those of the thread, on two other streams: the one holds a gather, NCCL's latest
 * operation is on the other one. */
static void operate(struct world *w, uint64_t seed)
{
    gather_load(&w->g, seed, w->beside);
    CUDA(cudaStreamSynchronize(w->beside));
    gather_call(&w->g, w->comm, w->beside);
    CUDA(cudaEventRecord(w->other, w->beside));
    NCCL(ncclBroadcast(w->g.recv, w->g.recv, 16, ncclUint8, 0, w->comm, w->spare));
    CUDA(cudaEventRecord(w->third, w->spare));
}

static void look_meanwhile(struct world *w, void (*look)(struct world *w), int room)
{
    pthread_t thread;
    atomic_store(&w->calls, 0);
    atomic_store(&w->released, false);
    CUDA(cudaLaunchHostFunc(w->full, until_released, w));
    for (int i = 1; i < w->entries - room; i++)
        CUDA(cudaMemsetAsync(w->g.recv, 0x7f, 16, w->full));
    if (pthread_create(&thread, NULL, fill, w))
        DIE(3, "no thread");
    await_stuck(w);
    EXPECT(atomic_load(&w->calls) < 2 * w->gathers, "no queue is full: this test shows nothing");
    look(w);
    atomic_store(&w->released, true);
    pthread_join(thread, NULL);
}

static void round_of(struct world *w, void (*look)(struct world *w), int round)
{
    const uint64_t seed = (uint64_t)round + 1;
    operate(w, seed);
    if (w->g.rank == 0)
        look_meanwhile(w, look, round);
    else
        fill(w);
    gather_check(&w->g, seed, w->full, "the last gather");
    CUDA(cudaDeviceSynchronize());
}

static struct {
    void (*look)(struct world *w);
    int entries;
} what;

static void body(struct rank *r)
{
    static struct world w;
    w.entries = what.entries;
    w.gathers = what.entries; /* each is one entry, at least */
    NCCL(ncclCommInitRank(&w.comm, r->nranks, r->id, r->rank));
    gather_alloc(&w.g, r->rank, r->nranks, SHARD);
    CUDA(cudaStreamCreate(&w.full)); /* the default stream waits for it */
    CUDA(cudaStreamCreateWithFlags(&w.beside, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&w.spare, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++)
        CUDA(cudaEventCreateWithFlags(&w.event[i], cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&w.other, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&w.third, cudaEventDisableTiming));
    for (int round = 0; round < ROUNDS; round++)
        round_of(&w, what.look, round);
    gather_free(&w.g);
    NCCL(ncclCommDestroy(w.comm));
}

int main(int argc, char **argv)
{
    for (int i = 0; i < LENGTH(cases); i++)
        if (argc > 1 && !strcmp(argv[1], cases[i].name))
            what.look = cases[i].look;
    if (!what.look) {
        fprintf(stderr, "usage: full CASE [RANKS [ENTRIES]]\n");
        return 2;
    }
    what.entries = argc > 3 ? atoi(argv[3]) : 24;
    return forms_run(argc > 2 ? atoi(argv[2]) : 2, 20, body, NULL);
}
