/* SPDX-License-Identifier: Apache-2.0 */
/* Interprocess events behind a gather: another process is told of it, and may record the event as well.
 *
 *   event_ipc        two ranks; rank 0 makes the event, rank 1 opens it
 *
 * The ranks talk through shared host memory, so that nothing but the event orders one's device after the other's.
 */
#include <cuda.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include "forms.h"

#define SHARD ((size_t)256 << 10)
#define LATE_MS 40
#define WORK_MS 80 /* longer than the gather can be late */
#define ROUNDS 3

#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            DIE(3, "%s: error %d", #call, (int)e_);                                                                    \
    } while (0)

struct board {
    CUipcEventHandle event;
    CUipcMemHandle recv, side;
    _Atomic int arrived;
};

struct one {
    struct board *board;
    struct gather g;
    ncclComm_t comm;
    cudaStream_t s, other;
    cudaEvent_t event;
    uint8_t *owner_recv, *side; /* rank 0's memory as this rank has it; `side` is as large as recv */
    uint8_t *seen;
    size_t all;
    int met;
};

/* Both hosts are here. */
static void meet(struct one *o)
{
    o->met += 2;
    atomic_fetch_add(&o->board->arrived, 1);
    while (atomic_load(&o->board->arrived) < o->met)
        sched_yield();
}

static void open_shared(struct one *o)
{
    struct board *b = o->board;
    if (o->g.rank == 0) {
        DRIVER(cuEventCreate((CUevent *)&o->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        DRIVER(cuIpcGetEventHandle(&b->event, (CUevent)o->event));
        CUDA(cudaMalloc((void **)&o->side, o->all));
        o->owner_recv = o->g.recv;
        DRIVER(cuIpcGetMemHandle(&b->recv, (CUdeviceptr)(uintptr_t)o->owner_recv));
        DRIVER(cuIpcGetMemHandle(&b->side, (CUdeviceptr)(uintptr_t)o->side));
    }
    meet(o);
    if (o->g.rank == 1) {
        DRIVER(cuIpcOpenEventHandle((CUevent *)&o->event, b->event));
        DRIVER(cuIpcOpenMemHandle((CUdeviceptr *)&o->owner_recv, b->recv, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        DRIVER(cuIpcOpenMemHandle((CUdeviceptr *)&o->side, b->side, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    }
    meet(o);
}

static void gather(struct one *o, uint64_t seed, int late)
{
    gather_load(&o->g, seed, o->s);
    CUDA(cudaDeviceSynchronize());
    meet(o);
    if (o->g.rank == late)
        hold(o->s, LATE_MS);
    gather_call(&o->g, o->comm, o->s);
}

/* Rank 1 looks at what rank 0 has gathered, when the event says so. */
static void seen_by_other_process(struct one *o, uint64_t seed)
{
    gather(o, seed, 1);
    if (o->g.rank == 0)
        CUDA(cudaEventRecord(o->event, o->s));
    meet(o);
    if (o->g.rank == 1) {
        CUDA(cudaStreamWaitEvent(o->other, o->event, 0));
        CUDA(cudaMemcpyAsync(o->seen, o->owner_recv, o->all, cudaMemcpyDeviceToHost, o->other));
        CUDA(cudaStreamSynchronize(o->other));
        bytes_check(&o->g, o->seen, seed, "the other process's gather");
    }
    gather_check(&o->g, seed, o->s, "the own gather");
    meet(o); /* nobody reads these buffers any more */
}

/* `mine` records the event behind its gather; the other rank records it again behind late work; then `mine` waits. */
static void recorded_by_other_process(struct one *o, uint64_t seed, int mine)
{
    if (o->g.rank == mine)
        CUDA(cudaMemset(o->side, 0, o->all));
    gather(o, seed, -1);
    if (o->g.rank == mine)
        CUDA(cudaEventRecord(o->event, o->s));
    meet(o);
    if (o->g.rank != mine) {
        hold(o->other, WORK_MS);
        CUDA(cudaMemsetAsync(o->side, 0x3c, o->all, o->other));
        CUDA(cudaEventRecord(o->event, o->other));
    }
    meet(o);
    if (o->g.rank == mine) {
        CUDA(cudaStreamWaitEvent(o->other, o->event, 0));
        CUDA(cudaMemcpyAsync(o->seen, o->side, o->all, cudaMemcpyDeviceToHost, o->other));
        CUDA(cudaStreamSynchronize(o->other));
        EXPECT(o->seen[0] == 0x3c && !memcmp(o->seen, o->seen + 1, o->all - 1),
               "rank %d: the other process's record of the event was not waited for", mine);
    }
    gather_check(&o->g, seed, o->s, "the own gather");
    meet(o); /* nobody reads these buffers any more */
}

static void body(struct rank *r)
{
    struct one o = {.board = r->arg};
    NCCL(ncclCommInitRank(&o.comm, r->nranks, r->id, r->rank));
    gather_alloc(&o.g, r->rank, r->nranks, SHARD);
    o.all = SHARD * (size_t)r->nranks;
    CUDA(cudaMallocHost((void **)&o.seen, o.all));
    CUDA(cudaStreamCreateWithFlags(&o.s, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&o.other, cudaStreamNonBlocking));
    open_shared(&o);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        seen_by_other_process(&o, 10 * round + 1);
        recorded_by_other_process(&o, 10 * round + 2, 0);
        recorded_by_other_process(&o, 10 * round + 3, 1);
    }
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaEventDestroy(o.event));
    if (r->rank == 1) {
        DRIVER(cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)o.owner_recv));
        DRIVER(cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)o.side));
    }
    meet(&o);
    if (r->rank == 0)
        CUDA(cudaFree(o.side));
    gather_free(&o.g);
    CUDA(cudaFreeHost(o.seen));
    CUDA(cudaStreamDestroy(o.s));
    CUDA(cudaStreamDestroy(o.other));
    NCCL(ncclCommDestroy(o.comm));
}

int main(void)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return board == MAP_FAILED ? 2 : forms_run(2, 60, body, board);
}
