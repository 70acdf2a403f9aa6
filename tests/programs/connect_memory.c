/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of communicators: none before the first gather, and it goes back before an allocation fails.
 *
 *   memory SCENARIO [COMMS]
 *
 *   unused    COMMS communicators that only all-reduce: no device memory is missing, and 90% of the device can be taken
 *   used      they have gathered: all ranks take 90% at the same time, free it, and gather again
 *   one       only rank 0 takes 90%, while the others do nothing; then all gather again
 *   ahead     rank 0 can not have it: the others have already called the next gather. Everything stays exact
 *   stopped   nor while another rank is stopped: the allocation fails soon, and the ranks go on when that one is back
 *   killed    rank 0 takes 90% when another rank has been killed between the gathers
 *   suspended all suspend their communicators (NCCL 2.29), which gives back what they hold; then all gather again
 *   racing    rank 0 asks for more than there is, again and again, while all gather without a pause
 */
#include "../faults/player.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MAX_COMMS 8
#define SHARD 300001

static struct rank r;
static struct buffers b;
static ncclComm_t comms[MAX_COMMS];
static int count = MAX_COMMS;
static uint32_t phase;

static void meet(void)
{
    atomic_store(&board()->mark[r.rank], ++phase);
    CHECK(board_wait_all(r.nranks, -1, phase, 20000), "rank %d: the others have not come to %u", r.rank, phase);
}

static size_t free_bytes(void)
{
    size_t now = 0, total = 0;
    CUDA(cudaMemGetInfo(&now, &total));
    return now;
}

static size_t most(void)
{
    size_t now = 0, total = 0;
    CUDA(cudaMemGetInfo(&now, &total));
    return total / 10 * 9;
}

static void take_most(void)
{
    void *p = NULL;
    cudaError_t e = cudaMalloc(&p, most());
    CHECK(e == cudaSuccess, "rank %d: 90%% of the memory can not be had: %s", r.rank, cudaGetErrorString(e));
    CUDA(cudaFree(p));
}

static void can_not_take(void)
{
    void *p = NULL;
    int64_t start = player_ms();
    cudaError_t e = cudaMalloc(&p, most());
    CHECK(e == cudaErrorMemoryAllocation, "rank %d: %s", r.rank, cudaGetErrorString(e));
    CHECK(player_ms() - start < 5000, "rank %d: that took %d ms", r.rank, (int)(player_ms() - start));
    cudaGetLastError();
}

static void gather_all(unsigned round)
{
    for (int i = 0; i < count; i++) {
        r.comm = comms[i];
        buffers_fill(&b, &r, round + (unsigned)i);
        NCCL(player_gather(&r, &b, 20000));
        buffers_check(&b, &r, round + (unsigned)i);
    }
}

static void unused(void)
{
    size_t before = free_bytes();
    for (int i = 0; i < count; i++)
        NCCL(ncclAllReduce(b.send, b.recv, 1000, ncclFloat, ncclSum, comms[i], r.stream));
    CUDA(cudaStreamSynchronize(r.stream));
    CHECK(free_bytes() == before, "rank %d: %zu bytes are missing", r.rank, before - free_bytes());
    take_most();
    meet();
}

static void used(void)
{
    gather_all(0);
    meet();
    take_most();
    meet();
    gather_all(100);
}

static void one(void)
{
    gather_all(0);
    meet();
    if (r.rank == 0)
        take_most();
    meet();
    gather_all(100);
}

static void ahead(void)
{
    gather_all(0);
    r.comm = comms[0];
    buffers_fill(&b, &r, 100);
    meet();
    if (r.rank != 0)
        NCCL(ncclAllGather(b.send, b.recv, b.shard, ncclInt8, r.comm, r.stream));
    meet();
    if (r.rank == 0) {
        can_not_take();
        NCCL(ncclAllGather(b.send, b.recv, b.shard, ncclInt8, r.comm, r.stream));
    }
    NCCL(player_wait(&r, 20000));
    buffers_check(&b, &r, 100);
    gather_all(200);
}

/* Rank 1 stops itself; launch continues it a little later. */
static void stopped(void)
{
    gather_all(0);
    meet();
    if (r.rank == 1)
        raise(SIGSTOP);
    else
        board_sleep_ms(100);
    if (r.rank == 0)
        can_not_take();
    gather_all(100);
}

static void killed(void)
{
    gather_all(0);
    meet();
    if (r.rank == 1)
        raise(SIGKILL);
    for (int i = 0; i < 5000 && kill(board()->pid[1], 0) == 0; i++)
        board_sleep_ms(1);
    board_sleep_ms(200); /* the other ranks notice */
    if (r.rank == 0)
        take_most();
    atomic_store(&board()->mark[r.rank], ++phase);
    CHECK(board_wait_all(r.nranks, 1, phase, 20000), "rank %d: the others have not come", r.rank);
}

/* Newer than the nccl.h at hand may be. */
static void by_name(const char *name, ncclComm_t comm)
{
    ncclResult_t (*call)(ncclComm_t comm, int flags) = NULL;
    *(void **)&call = dlsym(RTLD_DEFAULT, name);
    CHECK(call, "no %s", name);
    NCCL(call(comm, 1 /* NCCL_SUSPEND_MEM */));
}

static void suspended(void)
{
    for (unsigned round = 0; round < 3; round++) {
        const size_t before = free_bytes();
        gather_all(round * MAX_COMMS);
        meet();
        for (int i = 0; i < count; i++)
            by_name("ncclCommSuspend", comms[i]);
        meet();
        CHECK(free_bytes() >= before, "rank %d: %zu bytes are held", r.rank, before - free_bytes());
        for (int i = 0; i < count; i++)
            by_name("ncclCommResume", comms[i]);
        meet();
    }
    gather_all(100);
}

static _Atomic bool done;

static void *ask_for_too_much(void *arg)
{
    CUDA(cudaSetDevice(r.rank));
    while (!atomic_load(&done)) {
        void *p = NULL;
        if (cudaMalloc(&p, most()) == cudaSuccess)
            CUDA(cudaFree(p));
        cudaGetLastError();
        board_sleep_ms(1);
    }
    return arg;
}

static void racing(void)
{
    pthread_t t;
    if (r.rank == 0)
        CHECK(pthread_create(&t, NULL, ask_for_too_much, NULL) == 0, "no thread");
    for (unsigned round = 0; round < 20; round++) {
        gather_all(round * MAX_COMMS);
        if (round % 4 == 0)
            board_sleep_ms(30);
    }
    atomic_store(&done, true);
    if (r.rank == 0)
        pthread_join(t, NULL);
}

static const struct {
    const char *name;
    void (*play)(void);
} scenarios[] = {{"unused", unused},   {"used", used},     {"one", one},       {"ahead", ahead},
                 {"stopped", stopped}, {"killed", killed}, {"racing", racing}, {"suspended", suspended}};

static void make_comms(void)
{
    NCCL(ncclCommInitRank(&comms[0], r.nranks, r.id, r.rank));
    for (int i = 1; i < count; i++)
        NCCL(ncclCommSplit(comms[0], 0, r.rank, &comms[i], NULL));
}

int main(int argc, char **argv)
{
    CHECK(argc >= 2, "usage: memory SCENARIO [COMMS]");
    count = argc > 2 ? atoi(argv[2]) : MAX_COMMS;
    CHECK(count >= 1 && count <= MAX_COMMS, "COMMS is %d", count);
    alarm(60);
    r = player_start();
    CUDA(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    buffers_make(&b, &r, SHARD);
    size_t before = free_bytes();
    make_comms();
    CHECK(free_bytes() == before, "rank %d: making communicators took %zu bytes", r.rank, before - free_bytes());
    meet(); /* a gather of one rank connects the others, too */
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name))
            scenarios[i].play();
    for (int i = count - 1; i >= 0; i--)
        NCCL(ncclCommDestroy(comms[i]));
    buffers_free(&b);
    return 0;
}
