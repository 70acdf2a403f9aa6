/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of a process, alone or beside ranks of other processes.
 *
 *   threads SCENARIO THREADS [WORD...]
 *
 *   exact    gathers, every byte checked
 *   ahead    all ranks but rank 0 are a gather ahead, while rank 0's thread synchronises its device, allocates, frees
 *            and synchronises a stream; then it makes its call. CUDA ties a queued copy of another device's cuMemAlloc
 *            memory to that device's context, so rank 0 would wait for ever for a copy that waits for rank 0.
 *
 *   nccl        buffers of ncclMemAlloc, else of cudaMalloc
 *   window      the same, registered with the communicator; `registered`: those of cudaMalloc
 *   in_place    ranks send from their places in the receive buffers
 *   apart       buffers begin 1 byte behind an allocation, which is larger on each rank; `even`: 16 bytes behind it
 *   anew        each round has buffers of its own
 *   shard=N     bytes
 *   late        devices get access to each other (cudaDeviceEnablePeerAccess) after some rounds
 *   twice       once more when all devices have been reset
 *   ended       give it back while a gather is under way, and take it again; `early`: before the first round
 *
 * A process has THREADS ranks, one device each. A hang ends by the alarm.
 */
#include "../faults/player.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define ALARM_S 40 /* RANKS_ALARM: another time */

static struct {
    bool ahead, nccl, window, registered, in_place, apart, even, anew, late, ended, early, twice;
    size_t shard;
    int threads, nprocs, proc;
    unsigned rounds;
    ncclUniqueId id;
    pthread_barrier_t barrier;
} all = {.shard = 700001, .rounds = 6};

static const struct {
    const char *name;
    bool *is;
} words[] = {{"nccl", &all.nccl},   {"window", &all.window},     {"registered", &all.registered},
             {"apart", &all.apart}, {"in_place", &all.in_place}, {"even", &all.even},
             {"anew", &all.anew},   {"late", &all.late},         {"ended", &all.ended},
             {"early", &all.early}, {"twice", &all.twice},       {"cudamalloc", &(bool){false}}};

/* ---- buffers ---- */

static void *allocate(size_t bytes)
{
    void *p = NULL;
    if (all.nccl)
        NCCL(ncclMemAlloc(&p, bytes));
    else
        CUDA(cudaMalloc(&p, bytes));
    return p;
}

static void make(struct buffers *b, const struct rank *r)
{
    const size_t skip = all.even ? 16 : all.apart ? 1 : 0, more = skip ? skip + 4096 * (size_t)r->rank : 0;
    *b = (struct buffers){.shard = all.shard, .all = all.shard * (size_t)r->nranks};
    CHECK((b->host = malloc(b->all)), "no memory");
    b->recv = (uint8_t *)allocate(b->all + more) + skip;
    b->send = all.in_place ? b->recv + (size_t)r->rank * b->shard : (uint8_t *)allocate(b->shard + 2 * more) + 2 * skip;
}

static void give_back(uint8_t *p, size_t skip)
{
    if (all.nccl)
        NCCL(ncclMemFree(p - skip));
    else
        CUDA(cudaFree(p - skip));
}

static void release(struct buffers *b)
{
    const size_t skip = all.even ? 16 : all.apart ? 1 : 0;
    if (!all.in_place)
        give_back(b->send, 2 * skip);
    give_back(b->recv, skip);
    free(b->host);
}

/* Poison first: of what is sent in place, that must not come last. */
static void fill(struct buffers *b, struct rank *r, unsigned round)
{
    struct buffers apart = *b;
    if (!all.in_place) {
        buffers_fill(b, r, round);
        return;
    }
    CUDA(cudaMalloc((void **)&apart.send, b->shard));
    buffers_fill(&apart, r, round);
    CUDA(cudaMemcpyAsync(b->send, apart.send, b->shard, cudaMemcpyDeviceToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaFree(apart.send));
}

/* ---- access ---- */

static void expect(cudaError_t r, cudaError_t want, const char *what)
{
    cudaGetLastError();
    CHECK(r == want, "%s: %s, not %s", what, cudaGetErrorString(r), cudaGetErrorString(want));
}

static void take_access(const struct rank *r)
{
    for (int peer = 0; peer < all.threads; peer++) {
        if (peer == r->rank)
            continue;
        expect(cudaDeviceEnablePeerAccess(peer, 0), cudaSuccess, "access");
        expect(cudaDeviceEnablePeerAccess(peer, 0), cudaErrorPeerAccessAlreadyEnabled, "access once more");
    }
}

static void end_access(const struct rank *r)
{
    for (int peer = 0; peer < all.threads; peer++) {
        if (peer == r->rank)
            continue;
        expect(cudaDeviceDisablePeerAccess(peer), cudaSuccess, "its end");
        expect(cudaDeviceDisablePeerAccess(peer), cudaErrorPeerAccessNotEnabled, "its end once more");
    }
}

/* With the round's call under way here, and perhaps nowhere else. */
static void change_access(const struct rank *r, unsigned round)
{
    if (all.late && round == 4)
        take_access(r);
    if (all.ended && round % 4 == 1 && round > 4)
        end_access(r);
    if (all.ended && round % 4 == 3 && round > 4)
        take_access(r);
}

/* ---- rounds ---- */

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
    fill(b, r, round);
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
    change_access(r, round);
    NCCL(player_wait(r, 20000));
    buffers_check(b, r, round);
}

static void live(int thread)
{
    struct rank r = {.rank = all.proc * all.threads + thread, .nranks = all.nprocs * all.threads};
    struct buffers b;
    cudaStream_t other;
    CUDA(cudaSetDevice(r.rank));
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    make(&b, &r);
    NCCL(ncclCommInitRank(&r.comm, r.nranks, all.id, r.rank));
    if (all.early) {
        take_access(&r);
        end_access(&r);
    }
    void *handle[2] = {NULL, NULL};
    if (all.window || all.registered) {
        NCCL(ncclCommRegister(r.comm, b.send, b.shard, &handle[0]));
        NCCL(ncclCommRegister(r.comm, b.recv, b.all, &handle[1]));
    }
    for (unsigned round = 0; round < all.rounds; round++) {
        one_round(&r, &b, round, other);
        if (all.anew) {
            release(&b);
            make(&b, &r);
        }
        board_sleep_ms(round < 3 || round == 5 ? 120 : 0); /* blocks are offered in the background */
    }
    pthread_barrier_wait(&all.barrier);
    for (int i = 0; i < 2; i++)
        if (handle[i])
            NCCL(ncclCommDeregister(r.comm, handle[i]));
    NCCL(ncclCommDestroy(r.comm));
    release(&b);
}

static void *run(void *arg)
{
    live((int)(intptr_t)arg);
    if (!all.twice)
        return NULL;
    pthread_barrier_wait(&all.barrier);
    CUDA(cudaDeviceReset());
    if (!arg) {
        NCCL(ncclGetUniqueId(&all.id));
        all.late = false;
    }
    pthread_barrier_wait(&all.barrier);
    live((int)(intptr_t)arg);
    return NULL;
}

static void understand(const char *word)
{
    size_t i = 0;
    for (; i < sizeof words / sizeof *words && strcmp(words[i].name, word) != 0; i++)
        ;
    if (i < sizeof words / sizeof *words)
        *words[i].is = true;
    else
        CHECK(sscanf(word, "shard=%zu", &all.shard) == 1, "what is %s?", word);
}

int main(int argc, char **argv)
{
    pthread_t t[BOARD_RANKS];
    CHECK(argc >= 3, "usage: threads exact|ahead THREADS [WORD...]");
    all.threads = atoi(argv[2]);
    CHECK(all.threads >= 1 && all.threads <= BOARD_RANKS, "THREADS is %d", all.threads);
    all.ahead = !strcmp(argv[1], "ahead");
    for (int i = 3; i < argc; i++)
        understand(argv[i]);
    all.nccl = all.nccl || all.window;
    all.rounds = all.late || all.ended || all.anew ? 16 : all.rounds;
    struct rank here = player_start();
    all.proc = here.rank;
    all.nprocs = here.nranks;
    all.id = here.id;
    alarm(getenv("RANKS_ALARM") ? (unsigned)atoi(getenv("RANKS_ALARM")) : ALARM_S);
    pthread_barrier_init(&all.barrier, NULL, (unsigned)all.threads);
    for (int i = 0; i < all.threads; i++)
        CHECK(pthread_create(&t[i], NULL, run, (void *)(intptr_t)i) == 0, "no thread");
    for (int i = 0; i < all.threads; i++)
        pthread_join(t[i], NULL);
    return 0;
}
