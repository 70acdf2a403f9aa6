/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of a process, alone or beside ranks of other processes.
 *
 *   threads SCENARIO THREADS [nccl|window]
 *
 *   exact    gathers, every byte checked
 *   ahead    all ranks but rank 0 are a gather ahead, while rank 0's thread synchronises its device, allocates, frees
 *            and synchronises a stream; then it makes its call. CUDA ties a queued copy of another device's cuMemAlloc
 *            memory to that device's context, so rank 0 would wait for ever for a copy that waits for rank 0.
 *   nccl     buffers of ncclMemAlloc, else of cudaMalloc
 *   window   the same, registered with the communicator
 *
 * A process has THREADS ranks, one device each. A hang ends by the alarm.
 */
#include "../faults/player.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 6
#define SHARD 700001
#define ALARM_S 40

static struct {
    bool ahead, nccl, window;
    int threads, nprocs, proc;
    ncclUniqueId id;
    pthread_barrier_t barrier;
} all;

static void make(struct buffers *b, const struct rank *r)
{
    if (!all.nccl) {
        buffers_make(b, r, SHARD);
        return;
    }
    *b = (struct buffers){.shard = SHARD, .all = (size_t)SHARD * (size_t)r->nranks};
    CHECK((b->host = malloc(b->all)), "no memory");
    NCCL(ncclMemAlloc((void **)&b->send, b->shard));
    NCCL(ncclMemAlloc((void **)&b->recv, b->all));
}

static void release(struct buffers *b)
{
    if (!all.nccl) {
        buffers_free(b);
        return;
    }
    NCCL(ncclMemFree(b->send));
    NCCL(ncclMemFree(b->recv));
    free(b->host);
}

/* What a thread may do before its call, whatever the other ranks have called. */
static void use_the_device(cudaStream_t other)
{
    void *p = NULL;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMalloc(&p, 3 << 20));
    CUDA(cudaMemsetAsync(p, 1, 3 << 20, other));
    CUDA(cudaStreamSynchronize(other));
    CUDA(cudaFree(p));
}

static void one_round(struct rank *r, struct buffers *b, unsigned round, cudaStream_t other)
{
    bool late = all.ahead && r->rank == 0;
    buffers_fill(b, r, round);
    pthread_barrier_wait(&all.barrier);
    if (!late)
        NCCL(ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream));
    /* The first call connects; rank 0 comes to it as well. */
    if (round > 0)
        pthread_barrier_wait(&all.barrier);
    if (late) {
        if (round > 0)
            use_the_device(other);
        NCCL(ncclAllGather(b->send, b->recv, b->shard, ncclInt8, r->comm, r->stream));
    }
    NCCL(player_wait(r, 20000));
    buffers_check(b, r, round);
}

static void *run(void *arg)
{
    struct rank r = {.rank = all.proc * all.threads + (int)(intptr_t)arg, .nranks = all.nprocs * all.threads};
    struct buffers b;
    cudaStream_t other;
    CUDA(cudaSetDevice(r.rank));
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    make(&b, &r);
    NCCL(ncclCommInitRank(&r.comm, r.nranks, all.id, r.rank));
    void *handle[2] = {NULL, NULL};
    if (all.window) {
        NCCL(ncclCommRegister(r.comm, b.send, b.shard, &handle[0]));
        NCCL(ncclCommRegister(r.comm, b.recv, b.all, &handle[1]));
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        one_round(&r, &b, round, other);
        board_sleep_ms(round < 3 ? 120 : 0); /* blocks are offered in the background */
    }
    pthread_barrier_wait(&all.barrier);
    for (int i = 0; i < 2; i++)
        if (handle[i])
            NCCL(ncclCommDeregister(r.comm, handle[i]));
    NCCL(ncclCommDestroy(r.comm));
    release(&b);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t[BOARD_RANKS];
    CHECK(argc >= 3, "usage: threads exact|ahead THREADS [nccl]");
    all.threads = atoi(argv[2]);
    CHECK(all.threads >= 1 && all.threads <= BOARD_RANKS, "THREADS is %d", all.threads);
    all.ahead = !strcmp(argv[1], "ahead");
    all.window = argc > 3 && !strcmp(argv[3], "window");
    all.nccl = argc > 3 && (all.window || !strcmp(argv[3], "nccl"));
    struct rank here = player_start();
    all.proc = here.rank;
    all.nprocs = here.nranks;
    all.id = here.id;
    alarm(ALARM_S);
    pthread_barrier_init(&all.barrier, NULL, (unsigned)all.threads);
    for (int i = 0; i < all.threads; i++)
        CHECK(pthread_create(&t[i], NULL, run, (void *)(intptr_t)i) == 0, "no thread");
    for (int i = 0; i < all.threads; i++)
        pthread_join(t[i], NULL);
    return 0;
}
