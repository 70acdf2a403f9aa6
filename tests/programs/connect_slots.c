/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of very different sizes on one communicator, which go through slots of several sizes. All that ranks get is
 * compared.
 *
 *   slots SCENARIO UNIT     UNIT: bytes of the smallest slots
 *
 *   grows     gathers, reduce-scatters and all-reduces, from small to large and back, all behind each other
 *   crossed   two communicators that have gathered little: rank 0 gathers much on A and then on B, the others on B first
 *   held      rank 1's stream stands still before its small gather until rank 0's first large call has returned
 *   graphs    a small gather is captured, and a larger one, which is the first of its size; replays and calls in turn,
 *             of which rank 0 makes the ones where the others make the others
 *   graphs_at_once   one graph holds both, and a third between them
 *   killed    rank 1 has been killed between small gathers and the first large one; they abort
 */
#include "../faults/player.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { SIZES = 5, SUMS = 3, ROUNDS = 3, CAPTURED = 2 };
static const size_t halves[SIZES] = {1, 7, 25, 90, 150}; /* of a unit */

static struct rank r;
static size_t unit;

static size_t size_of(int i)
{
    return halves[i] * unit / 2 - (i % 2 ? 4 : 0);
}

/* ---- sums of whole numbers: of a shard for each rank, of which it gets one, or all ---- */

struct sums {
    size_t count;       /* of a shard */
    float *send, *recv; /* the latter has room for all of them */
};

static float value(int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 13) % 101);
}

static void sums_make(struct sums *s, size_t shard)
{
    const size_t all = shard / 4 * (size_t)r.nranks;
    float *host = malloc(all * 4);
    CHECK(host, "no memory");
    s->count = shard / 4;
    CUDA(cudaMalloc((void **)&s->send, all * 4));
    CUDA(cudaMalloc((void **)&s->recv, all * 4));
    for (size_t i = 0; i < all; i++)
        host[i] = value(r.rank, i);
    to_device(s->send, host, all * 4);
    CUDA(cudaMemset(s->recv, 0xff, all * 4));
    CUDA(cudaDeviceSynchronize());
    free(host);
}

static void sums_check(struct sums *s, bool all)
{
    const size_t count = all ? s->count * (size_t)r.nranks : s->count, first = all ? 0 : s->count * (size_t)r.rank;
    float *host = malloc(count * 4);
    CHECK(host, "no memory");
    CUDA(cudaMemcpy(host, s->recv, count * 4, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int o = 0; o < r.nranks; o++)
            want += value(o, first + i);
        CHECK(host[i] == want, "rank %d: sum %zu of %zu is %g, not %g", r.rank, i, count, (double)host[i],
              (double)want);
    }
    free(host);
    CUDA(cudaFree(s->send));
    CUDA(cudaFree(s->recv));
}

static void sums_call(struct sums *s, bool all)
{
    if (all)
        NCCL(ncclAllReduce(s->send, s->recv, s->count * (size_t)r.nranks, ncclFloat, ncclSum, r.comm, r.stream));
    else
        NCCL(ncclReduceScatter(s->send, s->recv, s->count, ncclFloat, ncclSum, r.comm, r.stream));
}

/* ---- gathers ---- */

static void call(const struct buffers *b, ncclComm_t comm)
{
    NCCL(ncclAllGather(b->send, b->recv, b->shard, ncclInt8, comm, r.stream));
}

static void done(const struct buffers *b, unsigned round)
{
    NCCL(player_wait(&r, 40000));
    buffers_check(b, &r, round);
}

static void made(struct buffers *b, int size, unsigned round)
{
    buffers_make(b, &r, size_of(size));
    buffers_fill(b, &r, round);
}

static void one(int size, unsigned round)
{
    struct buffers b;
    made(&b, size, round);
    call(&b, r.comm);
    done(&b, round);
    buffers_free(&b);
}

static void mark(uint32_t to)
{
    atomic_store(&board()->mark[r.rank], to);
}

/* ---- the scenarios ---- */

static void grows_once(int round)
{
    struct buffers b[SIZES];
    struct sums scattered[SUMS], reduced[SUMS];
    for (int i = 0; i < SIZES; i++)
        made(&b[i], i, (unsigned)(round * SIZES + i));
    for (int i = 0; i < SUMS; i++) {
        sums_make(&scattered[i], size_of(i));
        sums_make(&reduced[i], size_of(SUMS - 1 - i));
    }
    for (int n = 0; n < SIZES; n++) {
        const int i = round % 2 ? SIZES - 1 - n : n;
        call(&b[i], r.comm);
        if (n < SUMS) {
            sums_call(&scattered[n], false);
            sums_call(&reduced[n], true);
        }
    }
    NCCL(player_wait(&r, 40000));
    for (int i = 0; i < SIZES; i++) {
        buffers_check(&b[i], &r, (unsigned)(round * SIZES + i));
        buffers_free(&b[i]);
    }
    for (int i = 0; i < SUMS; i++) {
        sums_check(&scattered[i], false);
        sums_check(&reduced[i], true);
    }
}

static void grows(void)
{
    for (int round = 0; round < ROUNDS; round++)
        grows_once(round);
}

static void crossed(void)
{
    struct buffers b[2];
    ncclComm_t comm[2] = {r.comm};
    cudaStream_t stream[2] = {r.stream};
    NCCL(ncclCommSplit(r.comm, 0, r.rank, &comm[1], NULL));
    CUDA(cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        r.comm = comm[i];
        r.stream = stream[i];
        one(0, (unsigned)i);
        made(&b[i], 2, (unsigned)i + 2);
    }
    for (int n = 0; n < 2; n++) {
        const int i = r.rank == 0 ? n : 1 - n;
        r.stream = stream[i];
        call(&b[i], comm[i]);
    }
    for (int i = 0; i < 2; i++) {
        r.comm = comm[i];
        r.stream = stream[i];
        done(&b[i], (unsigned)i + 2);
        buffers_free(&b[i]);
    }
    NCCL(ncclCommDestroy(comm[1]));
    r.comm = comm[0];
}

static void await_rank_0(void *arg)
{
    (void)arg;
    CHECK(board_wait(&board()->mark[0], 1, 15000), "rank 0's large call does not return");
}

static void held(void)
{
    struct buffers small, large;
    one(0, 0);
    made(&small, 0, 1);
    made(&large, 2, 2);
    if (r.rank == 1)
        CUDA(cudaLaunchHostFunc(r.stream, await_rank_0, NULL));
    call(&small, r.comm);
    call(&large, r.comm);
    mark(1);
    done(&small, 1);
    done(&large, 2);
    buffers_free(&small);
    buffers_free(&large);
}

static cudaGraphExec_t captured(const struct buffers *b)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    call(b, r.comm);
    CUDA(cudaStreamEndCapture(r.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void graphs(void)
{
    static const int size[CAPTURED] = {0, 3};
    struct buffers b[CAPTURED];
    cudaGraphExec_t exec[CAPTURED];
    one(0, 0);
    for (int i = 0; i < CAPTURED; i++) {
        made(&b[i], size[i], (unsigned)i);
        exec[i] = captured(&b[i]);
    }
    one(1, 7);
    for (unsigned round = 0; round < 8; round++)
        for (int i = 0; i < CAPTURED; i++) {
            buffers_fill(&b[i], &r, round);
            if ((round & 1) == (r.rank == 0))
                CUDA(cudaGraphLaunch(exec[i], r.stream));
            else
                call(&b[i], r.comm);
            done(&b[i], round);
            one(round % SIZES, round);
        }
    for (int i = 0; i < CAPTURED; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_free(&b[i]);
    }
}

static void graphs_at_once(void)
{
    struct buffers b[SUMS];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    for (int i = 0; i < SUMS; i++)
        made(&b[i], i, 0);
    CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < SUMS; i++)
        call(&b[i], r.comm);
    CUDA(cudaStreamEndCapture(r.stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    for (unsigned round = 0; round < 4; round++) {
        for (int i = 0; i < SUMS; i++)
            buffers_fill(&b[i], &r, round);
        CUDA(cudaGraphLaunch(exec, r.stream));
        for (int i = 0; i < SUMS; i++)
            done(&b[i], round);
    }
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < SUMS; i++)
        buffers_free(&b[i]);
}

/* What is left to NCCL waits there for the dead one. */
static void *abort_soon(void *arg)
{
    CUDA(cudaSetDevice(rank_device(r.rank)));
    board_sleep_ms(1000);
    NCCL(ncclCommAbort(r.comm));
    return arg;
}

static void killed(void)
{
    struct buffers b;
    pthread_t t;
    one(0, 0);
    made(&b, 2, 1);
    mark(1);
    CHECK(board_wait_all(r.nranks, -1, 1, 20000), "rank %d: the others have not come", r.rank);
    if (r.rank == 1)
        raise(SIGKILL);
    CHECK(pthread_create(&t, NULL, abort_soon, NULL) == 0, "no thread");
    const int64_t start = player_ms();
    ncclAllGather(b.send, b.recv, b.shard, ncclInt8, r.comm, r.stream);
    pthread_join(t, NULL);
    CHECK(player_ms() - start < 8000, "rank %d: the call took %d ms", r.rank, (int)(player_ms() - start));
    r.comm = NULL;
}

static const struct {
    const char *name;
    void (*play)(void);
} scenarios[] = {
    {"grows", grows},  {"crossed", crossed}, {"held", held}, {"graphs", graphs}, {"graphs_at_once", graphs_at_once},
    {"killed", killed}};

int main(int argc, char **argv)
{
    CHECK(argc == 3, "usage: slots SCENARIO UNIT");
    unit = strtoul(argv[2], NULL, 0);
    CHECK(unit >= 4096, "UNIT is %zu", unit);
    alarm(90);
    r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    NCCL(ncclCommInitRank(&r.comm, r.nranks, r.id, r.rank));
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name))
            scenarios[i].play();
    if (r.comm)
        NCCL(ncclCommDestroy(r.comm));
    return 0;
}
