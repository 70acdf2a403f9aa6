/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that are used again right behind the call, while one rank is late: its stream stands still, its peers' do
 * not.
 *
 *   late RANKS CASE [LATE-ROUNDS]
 *
 * overwrite-*: `send` is overwritten on the same stream behind the call, and the late rank has not read it yet.
 * read-old: `recv` is still being read by earlier work of its late owner when the call is made.
 * produce: `send` gets its data on the stream just before the call.
 */
#include <string.h>
#include "zero.h"

#define SHARD ((size_t)256 << 10)
#define HOLD_MS 40

struct bench {
    struct rank *r;
    struct gather g;
    uint8_t *side, *junk, *seen; /* device, pinned, pinned: as large as recv */
    size_t all;
    uint64_t seed;
    int round;
    bool late;
};

#define TURN_MS 8

/* Who comes first to the call decides which way a pair takes: each rank in turn, the others well behind. */
static void take_turn(const struct bench *b)
{
    zero_barrier(b->r);
    sleep_ms((unsigned)(TURN_MS * ((b->r->rank + b->round / b->r->nranks) % b->r->nranks)));
}

static void finish(struct bench *b, const char *what)
{
    CUDA(cudaStreamSynchronize(b->r->stream));
    CUDA(cudaMemcpy(b->g.host, b->g.recv, b->all, cudaMemcpyDeviceToHost));
    bytes_check(&b->g, b->g.host, b->seed, what);
}

static void start(struct bench *b)
{
    if (b->late)
        hold(b->r->stream, HOLD_MS);
    gather_call(&b->g, b->r->comm, b->r->stream);
}

static void load(struct bench *b)
{
    gather_load(&b->g, b->seed, b->r->stream);
    CUDA(cudaStreamSynchronize(b->r->stream));
    take_turn(b);
}

static void overwrite_memset(struct bench *b)
{
    load(b);
    start(b);
    CUDA(cudaMemsetAsync(b->g.send, 0xee, SHARD, b->r->stream));
    finish(b, "memset behind the call");
}

static void overwrite_h2d(struct bench *b)
{
    load(b);
    start(b);
    CUDA(cudaMemcpyAsync(b->g.send, b->junk, SHARD, cudaMemcpyHostToDevice, b->r->stream));
    finish(b, "copy from the host behind the call");
}

static void overwrite_d2d(struct bench *b)
{
    load(b);
    start(b);
    CUDA(cudaMemcpyAsync(b->g.send, b->side, SHARD, cudaMemcpyDeviceToDevice, b->r->stream));
    finish(b, "copy on the device behind the call");
}

/* The stream is idle as soon as the host has waited for it: nothing orders the overwriting but that. */
static void overwrite_host_waits(struct bench *b)
{
    load(b);
    start(b);
    CUDA(cudaStreamSynchronize(b->r->stream));
    to_device(b->g.send, b->junk, SHARD);
    finish(b, "blocking copy behind the call");
}

/* The next gather sends from the same buffer; the results of both are looked at. */
static void next_gather(struct bench *b)
{
    load(b);
    start(b);
    CUDA(cudaMemcpyAsync(b->seen, b->g.recv, b->all, cudaMemcpyDeviceToHost, b->r->stream));
    CUDA(cudaMemcpyAsync(b->g.send, b->junk, SHARD, cudaMemcpyHostToDevice, b->r->stream));
    gather_call(&b->g, b->r->comm, b->r->stream);
    CUDA(cudaStreamSynchronize(b->r->stream));
    bytes_check(&b->g, b->seen, b->seed, "the first of two gathers");
}

static void read_old(struct bench *b)
{
    load(b); /* fills recv with 0xa5 */
    if (b->late)
        hold(b->r->stream, HOLD_MS);
    CUDA(cudaMemcpyAsync(b->side, b->g.recv, b->all, cudaMemcpyDeviceToDevice, b->r->stream));
    gather_call(&b->g, b->r->comm, b->r->stream);
    finish(b, "gather into a buffer that was being read");
    CUDA(cudaMemcpy(b->seen, b->side, b->all, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < b->all; i++)
        if (b->seen[i] != 0xa5) {
            wrong("rank %d: byte %zu was written before the stream had read it", b->g.rank, i);
            break;
        }
}

static void produce(struct bench *b)
{
    shard_fill(b->g.host, SHARD, b->seed, b->g.rank, false);
    to_device(b->side, b->g.host, SHARD);
    CUDA(cudaMemset(b->g.send, 0x77, SHARD));
    CUDA(cudaDeviceSynchronize());
    take_turn(b);
    if (b->late)
        hold(b->r->stream, HOLD_MS);
    CUDA(cudaMemcpyAsync(b->g.send, b->side, SHARD, cudaMemcpyDeviceToDevice, b->r->stream));
    gather_call(&b->g, b->r->comm, b->r->stream);
    finish(b, "data made just before the call");
}

/* send is a part of recv. */
static void in_one_buffer(struct bench *b)
{
    uint8_t *send = b->g.send;
    load(b);
    CUDA(cudaMemcpy(b->g.recv + (size_t)b->g.rank * SHARD, send, SHARD, cudaMemcpyDeviceToDevice));
    CUDA(cudaDeviceSynchronize());
    b->g.send = b->g.recv + (size_t)b->g.rank * SHARD;
    start(b);
    CUDA(cudaMemcpyAsync(b->seen, b->g.recv, b->all, cudaMemcpyDeviceToHost, b->r->stream));
    CUDA(cudaMemsetAsync(b->g.recv, 0x11, b->all, b->r->stream));
    CUDA(cudaStreamSynchronize(b->r->stream));
    bytes_check(&b->g, b->seen, b->seed, "zero-copy");
    b->g.send = send;
}

static const struct {
    const char *name;
    void (*body)(struct bench *b);
} cases[] = {
    {"overwrite-memset", overwrite_memset},
    {"overwrite-h2d", overwrite_h2d},
    {"overwrite-d2d", overwrite_d2d},
    {"overwrite-host-waits", overwrite_host_waits},
    {"next-gather", next_gather},
    {"read-old", read_old},
    {"produce", produce},
    {"in-one-buffer", in_one_buffer},
};

struct plan {
    const char *name;
    int rounds;
};

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct bench b = {.r = r, .all = SHARD * (size_t)r->nranks};
    rank_open(r);
    gather_alloc(&b.g, r->rank, r->nranks, SHARD);
    CUDA(cudaMalloc((void **)&b.side, b.all));
    CUDA(cudaMallocHost((void **)&b.junk, b.all));
    CUDA(cudaMallocHost((void **)&b.seen, b.all));
    memset(b.junk, 0xdd, b.all);
    zero_warm_up(r, &b.g);
    for (int i = 0; i < p->rounds; i++) {
        b.seed = (uint64_t)i + 1;
        b.round = i;
        b.late = i % r->nranks == r->rank;
        for (int c = 0; c < LENGTH(cases); c++)
            if (!strcmp(cases[c].name, p->name))
                cases[c].body(&b);
    }
    rank_close(r);
    gather_free(&b.g);
    CUDA(cudaFree(b.side));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct plan plan = {.name = argv[2], .rounds = argc > 3 ? atoi(argv[3]) : 12};
    return zero_run(atoi(argv[1]), 90, argv, body, &plan);
}
