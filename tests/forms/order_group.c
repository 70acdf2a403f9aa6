/* SPDX-License-Identifier: Apache-2.0 */
/* Groups behind the gather and around it. What a group does not touch it leaves pending, so a GEMM behind the group is
 * still fused; what it touches, it sees. */
#include "order.h"

/* A group of one operation of NCCL, as frameworks make them, on another communicator. */
static void reduce_in_group(struct look *l, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(l->side, l->side, 64, ncclUint8, ncclMax, l->comm2, stream));
    NCCL(ncclGroupEnd());
}

static void gemm_then_see(struct look *l, cudaStream_t stream)
{
    gemm_identity(l, l->g.recv, stream);
    see(l, l->side, stream);
}

static void beside(struct look *l)
{
    reduce_in_group(l, l->third);
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->s);
}

/* The same between an event and those who wait for it. NCCL records events of its own, as the group has two streams. */
static void beside_event(struct look *l)
{
    cudaStream_t fourth;
    CUDA(cudaStreamCreateWithFlags(&fourth, cudaStreamNonBlocking));
    CUDA(cudaEventRecord(l->event, l->s));
    NCCL(ncclGroupStart());
    reduce_in_group(l, l->third);
    reduce_in_group(l, fourth);
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    reduce_in_group(l, l->third);
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->other);
    CUDA(cudaStreamDestroy(fourth));
}

/* A gather that is too small for the ring, not in a group. */
static void beside_passed(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    NCCL(ncclAllGather(l->side, l->side + 64, 64, ncclUint8, l->comm2, l->third));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    CUDA(cudaStreamSynchronize(l->third));
    gemm_then_see(l, l->other);
}

static void broadcast_in_group(struct look *l, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, stream));
    NCCL(ncclGroupEnd());
    see(l, l->side, stream);
}

static void on_its_stream(struct look *l)
{
    broadcast_in_group(l, l->s);
}

/* By the name that is not hooked: only the driver's calls show what it does. */
static void unhooked(struct look *l)
{
    NCCL(ncclGroupStart());
    NCCL(pncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, l->s));
    NCCL(ncclGroupEnd());
    see(l, l->side, l->s);
}

/* A stream that waits for the legacy default stream. */
static void on_blocking(struct look *l)
{
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    broadcast_in_group(l, blocking);
    CUDA(cudaStreamDestroy(blocking));
}

/* Both in one group: the stream that was told, and one that was not. */
static void told_and_not(struct look *l)
{
    uint8_t *few;
    CUDA(cudaMalloc((void **)&few, 64));
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(few, few, 64, ncclUint8, ncclMax, l->comm2, l->third));
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm2, l->other));
    NCCL(ncclGroupEnd());
    see(l, l->side, l->third);
    CUDA(cudaFree(few));
}

const struct order_case order_group_cases[] = {
    {.name = "group-beside", .look = beside, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-beside-event", .look = beside_event, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-beside-passed", .look = beside_passed, .floats = true, .two_comms = true, .quiet = true},
    {.name = "group-on-its-stream", .look = on_its_stream, .two_comms = true},
    {.name = "group-unhooked", .look = unhooked, .two_comms = true},
    {.name = "group-on-blocking", .look = on_blocking, .stream = STREAM_LEGACY, .two_comms = true},
    {.name = "group-told-and-not", .look = told_and_not, .two_comms = true},
    {.name = NULL},
};
