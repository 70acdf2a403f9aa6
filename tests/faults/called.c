/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that goes away while the others hang inside of a call of NCCL, which connects its ranks in it
 * (SOFTGPU_NCCL_CONNECT).
 *
 *   called SCENARIO VICTIM [grouped] [scatter] [threads]
 *
 * Each of the others has one thread.
 *
 *   turn-killed    the victim is killed before NCCL's first call in its turn of the trials; the others are in it
 *   turn-aborted   it aborts
 *   turn-held      it is killed before the ring's call that comes before; the others' call of NCCL waits for the
 *                  context, too, which that holds (SOFTGPU_NCCL_CONNECT=2)
 *   left-killed    it is killed before the ring's call that comes before a small one, which stays with NCCL; the others
 *                  are in that
 *   left-spared    the same, but the small one is on a communicator of the others, and one of these comes to it late:
 *                  it works
 *   left-behind    the same, but the small one is on the stream of the ring's call, behind it, and is received where
 *                  that writes the victim's shard when it is let go of: it has the last word
 *   freed          it is killed before the ring's call; the others are in NCCL's first all-reduce, of which nothing is
 *                  told, until a second thread aborts
 *
 * `grouped`: NCCL's call is in a group. `scatter`: reduce-scatters. `threads`: the ranks are threads of one process.
 * NCCL's call must return the communicator's error, with the error set; the next call returns it as
 * well, and after ncclCommAbort the stream is free.
 */
#include "player.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 20000
#define TURN 8 /* the first call that is NCCL's: SLIPRING_TRIALS_AFTER is 0, and the first two ways are the ring's */

enum { ELEMENTS = 16 << 10, SHARD = ELEMENTS * 4, SMALL = 64 }; /* SMALL: with SLIPRING_MIN_BYTES of more */
enum { OPENED = 1, ENQUEUED, GONE };                            /* board marks */

struct called {
    struct rank r;
    struct buffers b;
    int victim;
    bool is_victim, grouped, scatter, threads;
};

static void mark(const struct called *h, uint32_t value)
{
    atomic_store(&board()->mark[h->r.rank], value);
}

static ncclResult_t enqueue_kind(const struct called *h, bool scatter)
{
    if (scatter)
        return ncclReduceScatter(h->b.recv, h->b.send, ELEMENTS, ncclFloat32, ncclSum, h->r.comm, h->r.stream);
    return ncclAllGather(h->b.send, h->b.recv, SHARD, ncclInt8, h->r.comm, h->r.stream);
}

static ncclResult_t enqueue(const struct called *h)
{
    return enqueue_kind(h, h->scatter);
}

static ncclResult_t enqueue_small(const struct called *h)
{
    if (h->scatter)
        return ncclReduceScatter(h->b.recv, h->b.send, SMALL / 4, ncclFloat32, ncclSum, h->r.comm, h->r.stream);
    return ncclAllGather(h->b.send, h->b.recv, SMALL, ncclInt8, h->r.comm, h->r.stream);
}

static ncclResult_t grouped(const struct called *h, ncclResult_t (*call)(const struct called *h))
{
    if (!h->grouped)
        return call(h);
    NCCL(ncclGroupStart());
    const ncclResult_t e = call(h);
    /* Nothing, but the group is more than its call. */
    NCCL(ncclBroadcast(h->b.send, h->b.recv, 0, ncclInt8, 0, h->r.comm, h->r.stream));
    const ncclResult_t end = ncclGroupEnd();
    return e != ncclSuccess ? e : end;
}

static bool in_error(const struct called *h)
{
    ncclResult_t error = ncclSuccess;
    NCCL(ncclCommGetAsyncError(h->r.comm, &error));
    return error != ncclSuccess;
}

static void calls_before(const struct called *h, unsigned last)
{
    for (unsigned number = 1; number <= last; number++) {
        NCCL(enqueue(h));
        NCCL(player_wait(&h->r, PATIENCE_MS));
    }
}

static void go(struct called *h)
{
    CHECK(board_wait_all(h->r.nranks, h->victim, ENQUEUED, PATIENCE_MS), "rank %d: the others have not called",
          h->victim);
    board_sleep_ms(50);
    kill(getpid(), SIGKILL);
}

/* It is in the call, and comes back by itself. */
static void must_return(struct called *h, ncclResult_t (*call)(const struct called *h))
{
    mark(h, ENQUEUED);
    const int64_t begin = player_ms();
    const ncclResult_t e = grouped(h, call);
    fprintf(stderr, "rank %d: the call returns %d after %d ms\n", h->r.rank, (int)e, (int)(player_ms() - begin));
    CHECK(e == ncclRemoteError, "rank %d: the call returns %d", h->r.rank, (int)e);
    CHECK(in_error(h), "rank %d: ncclCommGetAsyncError knows nothing", h->r.rank);
    player_drain(&h->r, PATIENCE_MS); /* a call that has told has let go */
    CHECK(enqueue(h) == ncclRemoteError, "rank %d: a communicator in error takes another call", h->r.rank);
    NCCL(ncclCommAbort(h->r.comm));
    CUDA(cudaStreamSynchronize(h->r.stream));
    mark(h, GONE);
}

static void turn_killed(struct called *h)
{
    calls_before(h, TURN - 1);
    if (h->is_victim)
        go(h);
    must_return(h, enqueue);
}

static void turn_aborted(struct called *h)
{
    calls_before(h, TURN - 1);
    if (!h->is_victim) {
        must_return(h, enqueue);
        return;
    }
    CHECK(board_wait_all(h->r.nranks, h->victim, ENQUEUED, PATIENCE_MS), "the others have not called");
    board_sleep_ms(50);
    NCCL(ncclCommAbort(h->r.comm));
    CHECK(board_wait_all(h->r.nranks, h->victim, GONE, PATIENCE_MS), "the others do not end");
}

static void turn_held(struct called *h)
{
    calls_before(h, TURN - 2);
    if (h->is_victim)
        go(h);
    NCCL(enqueue(h));
    must_return(h, enqueue);
}

static void left_killed(struct called *h)
{
    if (h->is_victim)
        go(h);
    NCCL(enqueue(h));
    must_return(h, enqueue_small);
}

static void await_error(const struct called *h)
{
    for (const int64_t end = player_ms() + PATIENCE_MS; !in_error(h); board_sleep_ms(1))
        CHECK(player_ms() < end, "rank %d: no error", h->r.rank);
}

/* The others, on a communicator of their own, with its data in memory of its own; `same`: what it receives comes to the
 * place of the victim's shard. */
static struct called left_make(const struct called *h, bool same)
{
    struct called left = *h;
    NCCL(ncclCommSplit(h->r.comm, h->is_victim, h->r.rank, &left.r.comm, NULL));
    left.r.rank -= h->r.rank > h->victim;
    left.r.nranks--;
    buffers_make(&left.b, &left.r, SMALL);
    if (same) {
        CUDA(cudaFree(left.b.recv));
        left.b.recv = h->b.recv + (size_t)h->victim * SHARD;
    }
    buffers_fill(&left.b, &left.r, 1);
    return left;
}

/* The ring's call, until it is known to have failed. */
static void left_fails(struct called *h)
{
    if (h->is_victim)
        go(h);
    NCCL(enqueue(h));
    mark(h, ENQUEUED);
    await_error(h);
}

static void left_end(struct called *left)
{
    CUDA(cudaStreamSynchronize(left->r.stream));
    buffers_check(&left->b, &left->r, 1);
    free(left->b.host);
    NCCL(ncclCommDestroy(left->r.comm));
}

static void left_spared(struct called *h)
{
    struct called left = left_make(h, false);
    CUDA(cudaStreamCreateWithFlags(&left.r.stream, cudaStreamNonBlocking));
    left_fails(h);
    if (left.r.rank == left.r.nranks - 1)
        board_sleep_ms(1000);
    NCCL(grouped(&left, enqueue_small));
    NCCL(ncclCommAbort(h->r.comm));
    left_end(&left);
}

static void left_behind(struct called *h)
{
    struct called left = left_make(h, true);
    left_fails(h);
    NCCL(grouped(&left, enqueue_small));
    NCCL(ncclCommAbort(h->r.comm));
    left_end(&left);
}

static void *abort_later(void *one)
{
    const struct called *h = one;
    CUDA(cudaSetDevice(h->r.rank));
    await_error(h);
    board_sleep_ms(300);
    NCCL(ncclCommAbort(h->r.comm));
    return NULL;
}

static void freed(struct called *h)
{
    pthread_t thread;
    if (h->is_victim)
        go(h);
    NCCL(enqueue(h));
    mark(h, ENQUEUED);
    CHECK(pthread_create(&thread, NULL, abort_later, h) == 0, "no thread");
    const ncclResult_t e = ncclBroadcast(h->b.send, h->b.send, ELEMENTS, ncclFloat32, 0, h->r.comm, h->r.stream);
    CHECK(e != ncclSuccess, "rank %d: NCCL has met a dead rank", h->r.rank);
    pthread_join(thread, NULL);
    player_drain(&h->r, PATIENCE_MS);
}

static const struct {
    const char *name;
    void (*play)(struct called *h);
} scenarios[] = {{"turn-killed", turn_killed},
                 {"turn-aborted", turn_aborted},
                 {"turn-held", turn_held},
                 {"left-killed", left_killed},
                 {"left-spared", left_spared},
                 {"left-behind", left_behind},
                 {"freed", freed}};

static const char *scenario;

static void play(struct called *h)
{
    CUDA(cudaStreamCreateWithFlags(&h->r.stream, cudaStreamNonBlocking));
    buffers_make(&h->b, &h->r, SHARD);
    CUDA(cudaMemset(h->b.recv, 0, h->b.all));
    NCCL(ncclCommInitRank(&h->r.comm, h->r.nranks, h->r.id, h->r.rank));
    if (h->threads) /* NCCL's, and not of the kind that it connects in its turn */
        NCCL(enqueue_kind(h, !h->scatter));
    NCCL(enqueue(h));
    NCCL(player_wait(&h->r, PATIENCE_MS));
    mark(h, OPENED);
    CHECK(board_wait_all(h->r.nranks, -1, OPENED, PATIENCE_MS), "rank %d: the others have not come", h->r.rank);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(scenario, scenarios[i].name)) {
            scenarios[i].play(h);
            return;
        }
    DIE(2, "no scenario %s", scenario);
}

static void *play_thread(void *arg)
{
    struct called *h = arg;
    CUDA(cudaSetDevice(h->r.rank));
    play(h);
    return NULL;
}

/* The ranks are threads of this process, three of them. */
static void play_threads(const struct called *all)
{
    enum { THREADS = 3 };
    static struct called ranks[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        ranks[i] = *all;
        ranks[i].r.rank = i;
        ranks[i].r.nranks = THREADS;
        ranks[i].is_victim = i == all->victim;
        CHECK(pthread_create(&thread[i], NULL, play_thread, &ranks[i]) == 0, "no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3, "usage: called SCENARIO VICTIM [grouped] [scatter] [threads]");
    static struct called h; /* static: nothing is lost in the ways that end the process */
    scenario = argv[1];
    h.r = player_start();
    h.victim = atoi(argv[2]);
    h.is_victim = h.r.rank == h.victim;
    for (int i = 3; i < argc; i++) {
        h.grouped |= !strcmp(argv[i], "grouped");
        h.scatter |= !strcmp(argv[i], "scatter");
        h.threads |= !strcmp(argv[i], "threads");
    }
    if (h.threads)
        play_threads(&h);
    else
        play(&h);
    return 0;
}
