/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that synchronise, query and record while another one enqueues gathers, on two communicators.
 *
 *   stress
 */
#include "forms.h"

#include <stdatomic.h>

#define SHARD ((size_t)50000)
#define ROUNDS 150

struct side {
    const struct rank *r;
    ncclComm_t comm;
    cudaStream_t stream;
    struct gather g;
    atomic_bool *done;
    int kind; /* 0, 1: gathers on that communicator; else it watches the streams of the other two */
    struct side *all;
};

static void gathers(struct side *me)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        gather_load(&me->g, seed, me->stream);
        gather_call(&me->g, me->comm, me->stream);
        CUDA(cudaMemsetAsync(me->g.send, 0xee, SHARD, me->stream));
        gather_check(&me->g, seed, me->stream, "watched by other threads");
    }
    me->done[me->kind] = true;
}

static void query(cudaStream_t s)
{
    cudaError_t e = cudaStreamQuery(s);
    if (e != cudaSuccess && e != cudaErrorNotReady)
        DIE(3, "cudaStreamQuery: %s", cudaGetErrorString(e));
}

static void watches(struct side *me)
{
    cudaEvent_t event;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; !me->done[0] || !me->done[1]; i++) {
        cudaStream_t s = me->all[i % 2].stream;
        switch (me->kind == 2 ? i % 5 : 5 + i % 2) {
        case 0:
            CUDA(cudaStreamSynchronize(s));
            break;
        case 1:
            CUDA(cudaDeviceSynchronize());
            break;
        case 2:
            query(s);
            break;
        case 3:
            CUDA(cudaEventRecord(event, s));
            CUDA(cudaEventSynchronize(event));
            break;
        case 4:
            sleep_ms(1);
            break;
        case 5:
            CUDA(cudaEventRecord(event, s));
            CUDA(cudaStreamWaitEvent(me->stream, event, 0));
            CUDA(cudaMemsetAsync(me->g.recv, i & 0xff, SHARD, me->stream));
            break;
        default:
            CUDA(cudaStreamSynchronize(me->stream));
        }
    }
    CUDA(cudaEventDestroy(event));
}

static void run(void *arg)
{
    struct side *me = arg;
    int devices;
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(me->r->rank % devices));
    if (me->kind < 2)
        gathers(me);
    else
        watches(me);
}

static void body(struct rank *r)
{
    struct side side[4];
    atomic_bool done[2] = {false, false};
    for (int i = 0; i < 4; i++) {
        side[i] = (struct side){.r = r, .kind = i, .done = done, .all = side};
        CUDA(cudaStreamCreateWithFlags(&side[i].stream, i % 2 ? cudaStreamDefault : cudaStreamNonBlocking));
        gather_alloc(&side[i].g, r->rank, r->nranks, SHARD);
    }
    NCCL(ncclCommInitRank(&side[0].comm, r->nranks, r->id, r->rank));
    NCCL(ncclCommSplit(side[0].comm, 0, -r->rank, &side[1].comm, NULL));
    NCCL(ncclCommUserRank(side[1].comm, &side[1].g.rank));
    on_threads(4, side, sizeof *side, run);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 4; i++) {
        if (side[i].comm)
            NCCL(ncclCommDestroy(side[i].comm));
        CUDA(cudaStreamDestroy(side[i].stream));
        gather_free(&side[i].g);
    }
}

int main(void)
{
    return forms_run(2, 90, body, NULL);
}
