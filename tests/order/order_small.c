/* SPDX-License-Identifier: Apache-2.0 */
/* A small all-gather behind the large one, on the same stream, as of scale factors: NCCL's with SLIPRING_MIN_BYTES
 * between the two, and it overtakes the large one if it does not touch its memory. Whoever looks behind it sees both. */
#include "order.h"

#include <string.h>

enum { SMALL = 64 };

/* Behind `side`'s product, or in its stead: what the small one brings is elsewhere. */
struct small {
    uint8_t *send, *recv;
};

static struct small small_open(struct look *l)
{
    struct small s;
    CUDA(cudaMalloc((void **)&s.send, SMALL));
    CUDA(cudaMalloc((void **)&s.recv, (size_t)SMALL * (size_t)l->g.nranks));
    CUDA(cudaMemsetAsync(s.send, 0x40 + l->g.rank, SMALL, l->third));
    CUDA(cudaMemsetAsync(s.recv, 0, (size_t)SMALL * (size_t)l->g.nranks, l->third));
    CUDA(cudaStreamSynchronize(l->third));
    return s;
}

static void small_close(struct look *l, struct small *s, cudaStream_t stream)
{
    uint8_t have[SMALL * 64];
    CUDA(cudaMemcpyAsync(have, s->recv, (size_t)SMALL * (size_t)l->g.nranks, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int r = 0; r < l->g.nranks; r++)
        EXPECT(have[r * SMALL] == 0x40 + r && !memcmp(have + r * SMALL, have + r * SMALL + 1, SMALL - 1),
               "rank %d: the small gather lacks rank %d", l->g.rank, r);
    CUDA(cudaFree(s->send));
    CUDA(cudaFree(s->recv));
}

static void small_gather(struct look *l, const struct small *s, ncclComm_t comm)
{
    NCCL(ncclAllGather(s->send, s->recv, SMALL, ncclUint8, comm, l->s));
}

static void tell(struct look *l, cudaStream_t to)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(to, l->event, 0));
}

static void then_gemm_of(struct look *l, ncclComm_t comm)
{
    struct small s = small_open(l);
    small_gather(l, &s, comm);
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
    small_close(l, &s, l->s);
}

static void then_gemm(struct look *l)
{
    then_gemm_of(l, l->comm);
}

static void other_comm_then_gemm(struct look *l)
{
    then_gemm_of(l, l->comm2);
}

static void then_look(struct look *l)
{
    struct small s = small_open(l);
    small_gather(l, &s, l->comm);
    see(l, l->g.recv, l->s);
    small_close(l, &s, l->s);
}

/* NCCL runs the operations of a communicator in the order of the calls: this one comes behind the large gather, too. */
static void then_broadcast(struct look *l)
{
    struct small s = small_open(l);
    small_gather(l, &s, l->comm);
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, 0, l->comm, l->other));
    see(l, l->side, l->other);
    small_close(l, &s, l->other);
}

static void then_event(struct look *l)
{
    struct small s = small_open(l);
    small_gather(l, &s, l->comm);
    tell(l, l->other);
    see(l, l->g.recv, l->other);
    small_close(l, &s, l->other);
}

/* An event that carries the large one alone was recorded before. */
static void between_events(struct look *l)
{
    struct small s = small_open(l);
    CUDA(cudaEventRecord(l->event, l->s));
    small_gather(l, &s, l->comm);
    tell(l, l->other);
    see(l, l->g.recv, l->other);
    small_close(l, &s, l->other);
}

/* As PyTorch, which records an event behind every collective: the GEMM is fused all the same, and whoever waits for the
 * second event sees both gathers. */
static void event_behind_each(struct look *l)
{
    struct small s = small_open(l);
    cudaEvent_t first;
    uint8_t *looked;
    CUDA(cudaMallocHost((void **)&looked, l->all));
    CUDA(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
    CUDA(cudaEventRecord(first, l->s));
    small_gather(l, &s, l->comm);
    CUDA(cudaEventRecord(l->event, l->s));
    gemm_identity(l, l->g.recv, l->s);
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    see(l, l->g.recv, l->other);
    memcpy(looked, l->seen, l->all);
    see(l, l->side, l->s);
    EXPECT(!memcmp(looked, l->seen, l->all), "rank %d: the second event came before the large gather", l->g.rank);
    small_close(l, &s, l->other);
    CUDA(cudaEventDestroy(first));
    CUDA(cudaFreeHost(looked));
}

/* The second event is looked at before anything else is put on the stream: it must stand for the small gather, too. */
static void second_event_has_small(struct look *l)
{
    struct small s = small_open(l);
    CUDA(cudaEventRecord(l->event, l->s));
    if (l->late)
        hold(l->s, 40);
    small_gather(l, &s, l->comm);
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaEventSynchronize(l->event));
    small_close(l, &s, l->third);
    see(l, l->g.recv, l->third);
}

/* It sends what the large one brings: of the shard of the next rank. */
static void reads_recv(struct look *l)
{
    const int n = l->g.nranks, next = (l->g.rank + 1) % n;
    struct small s = small_open(l);
    uint8_t have[SMALL];
    NCCL(ncclAllGather(l->g.recv + (size_t)next * SHARD, s.recv, SMALL, ncclUint8, l->comm, l->s));
    see(l, l->g.recv, l->s);
    for (int r = 0; r < n; r++) {
        CUDA(cudaMemcpy(have, s.recv + r * SMALL, SMALL, cudaMemcpyDeviceToHost));
        EXPECT(!memcmp(have, l->seen + (size_t)((r + 1) % n) * SHARD, SMALL), "rank %d: rank %d has sent too early",
               l->g.rank, r);
    }
    CUDA(cudaFree(s.send));
    CUDA(cudaFree(s.recv));
}

/* It writes what the large one still sends. */
static void writes_send(struct look *l)
{
    struct small s = small_open(l);
    NCCL(ncclAllGather(s.send, l->g.send, SMALL, ncclUint8, l->comm, l->s));
    see(l, l->g.recv, l->s);
    CUDA(cudaFree(s.send));
    CUDA(cudaFree(s.recv));
}

/* The small one says that all ranks have come that far: a rank that has it may write into its neighbour's memory, whose
 * large gather stands before it. What it writes over is the shard that the neighbour takes last. */
static uint8_t *neighbours;

static void open_neighbours(struct look *l)
{
    const int n = l->g.nranks;
    cudaIpcMemHandle_t own, *all, *device;
    CUDA(cudaIpcGetMemHandle(&own, l->g.recv));
    CUDA(cudaMallocHost((void **)&all, (size_t)n * sizeof own));
    CUDA(cudaMalloc((void **)&device, (size_t)(n + 1) * sizeof own));
    to_device(device + n, &own, sizeof own);
    NCCL(ncclAllGather(device + n, device, sizeof own, ncclUint8, l->comm, l->s));
    CUDA(cudaMemcpyAsync(all, device, (size_t)n * sizeof own, cudaMemcpyDeviceToHost, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    CUDA(cudaIpcOpenMemHandle((void **)&neighbours, all[(l->g.rank + 1) % n], cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaFree(device));
    CUDA(cudaFreeHost(all));
}

static void then_write_there(struct look *l)
{
    const int n = l->g.nranks;
    const size_t mine = (size_t)l->g.rank * SHARD, theirs = (size_t)((l->g.rank + n - 1) % n) * SHARD;
    struct small s = small_open(l);
    small_gather(l, &s, l->comm);
    CUDA(cudaMemsetAsync(neighbours + mine, 0x3c, SHARD, l->s));
    NCCL(ncclAllReduce(s.send, s.send, SMALL, ncclUint8, ncclMax, l->comm, l->s));
    see(l, l->g.recv, l->s);
    for (size_t i = 0; i < SHARD; i++)
        if (l->seen[theirs + i] != 0x3c) {
            wrong("rank %d: the large gather has written byte %zu behind the small one", l->g.rank, i);
            break;
        }
    shard_fill(l->seen + theirs, SHARD, l->seed, (l->g.rank + n - 1) % n, false);
    CUDA(cudaIpcCloseMemHandle(neighbours));
    NCCL(ncclAllReduce(s.send, s.send, SMALL, ncclUint8, ncclMax, l->comm, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    small_close(l, &s, l->s);
}

const struct order_case order_small_cases[] = {
    {.name = "small-gemm", .look = then_gemm, .floats = true, .quiet = true},
    {.name = "small-comm-gemm", .look = other_comm_then_gemm, .floats = true, .two_comms = true, .quiet = true},
    {.name = "small-look", .look = then_look, .quiet = true},
    {.name = "small-broadcast", .look = then_broadcast, .quiet = true},
    {.name = "small-event", .look = then_event, .quiet = true},
    {.name = "small-between-events", .look = between_events, .quiet = true},
    {.name = "small-event-each", .look = event_behind_each, .floats = true, .quiet = true},
    {.name = "small-second-event", .look = second_event_has_small, .quiet = true},
    {.name = "small-reads", .look = reads_recv, .quiet = true},
    {.name = "small-tells-peer", .look = then_write_there, .before = open_neighbours, .quiet = true},
    {.name = "small-writes", .look = writes_send, .quiet = true},
    {.name = NULL},
};
