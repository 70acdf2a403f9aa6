/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one communicator on several streams, with no event between these: NCCL runs them in the order of
 * the calls, so each sees what those before it have brought. */
#include "order.h"

static void see_side(struct look *l)
{
    see(l, l->side, l->other);
}

static void then_broadcast(struct look *l)
{
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm, l->other));
    see_side(l);
}

static void then_broadcast_in_group(struct look *l)
{
    NCCL(ncclGroupStart());
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm, l->other));
    NCCL(ncclGroupEnd());
    see_side(l);
}

static void then_reduce(struct look *l)
{
    NCCL(ncclAllReduce(l->g.recv, l->side, l->all, ncclUint8, ncclMax, l->comm, l->other));
    see_side(l);
}

static void then_send(struct look *l)
{
    int n = l->g.nranks, next = (l->g.rank + 1) % n, previous = (l->g.rank + n - 1) % n;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(l->g.recv, l->all, ncclUint8, next, l->comm, l->other));
    NCCL(ncclRecv(l->side, l->all, ncclUint8, previous, l->comm, l->other));
    NCCL(ncclGroupEnd());
    see_side(l);
}

/* NCCL has ordered the first operation behind the gather, and the second behind the first. */
static void then_two(struct look *l)
{
    NCCL(ncclAllReduce(l->side, l->side, 4, ncclUint8, ncclMax, l->comm, l->third));
    then_broadcast(l);
}

/* Each rank passes the shard of the next one on: the gathered buffer, turned by one. */
static void gather_again(struct look *l, cudaStream_t stream)
{
    int n = l->g.nranks, next = (l->g.rank + 1) % n;
    NCCL(ncclAllGather(l->g.recv + (size_t)next * SHARD, l->side, SHARD, ncclUint8, l->comm, stream));
    for (int r = 0; r < n; r++)
        CUDA(cudaMemcpyAsync(l->seen + (size_t)((r + 1) % n) * SHARD, l->side + (size_t)r * SHARD, SHARD,
                             cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void then_gather(struct look *l)
{
    gather_again(l, l->other);
}

static void then_gather_on_new(struct look *l)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    gather_again(l, stream);
    CUDA(cudaStreamDestroy(stream));
}

/* ---- an operation of NCCL before the gather ---- */

static void hide_send(struct look *l)
{
    CUDA(cudaMemcpyAsync(l->side, l->g.send, SHARD, cudaMemcpyDeviceToDevice, l->s));
    CUDA(cudaMemsetAsync(l->g.send, 0x77, SHARD, l->s));
}

static void send_to_itself(struct look *l, cudaStream_t stream)
{
    NCCL(ncclGroupStart());
    NCCL(ncclSend(l->side, SHARD, ncclUint8, l->g.rank, l->comm, stream));
    NCCL(ncclRecv(l->g.send, SHARD, ncclUint8, l->g.rank, l->comm, stream));
    NCCL(ncclGroupEnd());
}

static void produce(struct look *l)
{
    if (l->late)
        hold(l->other, 40);
    send_to_itself(l, l->other);
}

static void produce_and_destroy(struct look *l)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (l->late)
        hold(stream, 40);
    send_to_itself(l, stream);
    CUDA(cudaStreamDestroy(stream));
}

/* The gather's stream is made when the other one has gone, and may have its handle. */
static void produce_and_come_again(struct look *l)
{
    CUDA(cudaStreamDestroy(l->s));
    produce_and_destroy(l);
    CUDA(cudaStreamCreateWithFlags(&l->s, cudaStreamNonBlocking));
}

/* The first operations on one stream, which then ends: nothing has been noted behind them until it does. */
static void produce_behind_gather(struct look *l)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NCCL(ncclAllGather(l->g.send, l->g.recv, SHARD, ncclUint8, l->comm, stream));
    if (l->late)
        hold(stream, 40);
    send_to_itself(l, stream);
    CUDA(cudaStreamDestroy(stream));
}

static void then_see(struct look *l)
{
    see(l, l->g.recv, l->s);
}

const struct order_case order_comm_cases[] = {
    {.name = "comm-broadcast", .quiet = true, .look = then_broadcast},
    {.name = "comm-broadcast-group", .quiet = true, .look = then_broadcast_in_group},
    {.name = "comm-reduce", .quiet = true, .look = then_reduce},
    {.name = "comm-send", .quiet = true, .look = then_send},
    {.name = "comm-two", .quiet = true, .look = then_two},
    {.name = "comm-gather", .quiet = true, .look = then_gather},
    {.name = "comm-gather-new", .quiet = true, .look = then_gather_on_new},
    {.name = "comm-produce", .quiet = true, .look = then_see, .before = hide_send, .on_the_way = produce},
    {.name = "comm-produce-destroy",
     .quiet = true,
     .look = then_see,
     .before = hide_send,
     .on_the_way = produce_and_destroy},
    {.name = "comm-produce-again",
     .quiet = true,
     .look = then_see,
     .before = hide_send,
     .on_the_way = produce_and_come_again},
    {.name = "comm-produce-behind",
     .quiet = true,
     .look = then_see,
     .before = hide_send,
     .on_the_way = produce_behind_gather},
    {.name = NULL},
};
