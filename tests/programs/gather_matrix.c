/* SPDX-License-Identifier: Apache-2.0 */
/* All-gathers of many sizes, types and placements, each compared bit for bit with the same call through NCCL's
 * pncclAllGather (which nothing interposes). Random data in every round, poisoned receive buffers.
 *
 *   gather_matrix RANKS [LARGEST_BYTES [SMALLEST_BYTES]]
 */
#include "ranks.h"

#include <string.h>

/* The largest has all the pieces that a shard is cut into with so many ranks (kernels/ring_open.c). */
static const size_t sizes[] = {1, 3, 4096, (1u << 20) + 5, 0};
#define LARGEST(nranks) (((size_t)64 << 20) / (size_t)(nranks) + 5)

static const struct {
    const char *name;
    ncclDataType_t type;
    size_t bytes;
} types[] = {{"fp32", ncclFloat32, 4}, {"bf16", ncclBfloat16, 2}, {"int8", ncclInt8, 1}};

struct limits {
    size_t largest, smallest;
};

#define WINDOW ((size_t)4 << 20)

struct buffers {
    uint8_t *send, *recv, *reference; /* device */
    uint8_t *host;                    /* one shard */
    uint8_t *window;                  /* two pieces of WINDOW bytes */
};

/* Through a window: the host's memory is the device's. */
static void compare(const struct rank *r, const struct buffers *b, size_t all, const char *what)
{
    for (size_t at = 0; at < all; at += WINDOW) {
        size_t n = all - at < WINDOW ? all - at : WINDOW, i = 0;
        CUDA(cudaMemcpy(b->window, b->recv + at, n, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(b->window + WINDOW, b->reference + at, n, cudaMemcpyDeviceToHost));
        if (memcmp(b->window, b->window + WINDOW, n) == 0)
            continue;
        while (b->window[i] == b->window[WINDOW + i])
            i++;
        DIE(1, "rank %d: %s: byte %zu of %zu is %02x, NCCL's is %02x", r->rank, what, at + i, all, b->window[i],
            b->window[WINDOW + i]);
    }
}

static void once(struct rank *r, const struct buffers *b, size_t count, int t, bool in_place, int round)
{
    size_t shard = count * types[t].bytes, all = shard * (size_t)r->nranks;
    char what[96];
    snprintf(what, sizeof what, "%zu x %s, %s, round %d", count, types[t].name, in_place ? "in place" : "not in place",
             round);
    uint8_t *send = in_place ? b->recv + (size_t)r->rank * shard : b->send;
    CUDA(cudaMemsetAsync(b->recv, 0xa5, all, r->stream));
    CUDA(cudaMemsetAsync(b->reference, 0x5a, all, r->stream));
    hash_fill(b->host, shard, hash64((uint64_t)r->rank, (uint64_t)round * 1000 + (uint64_t)t * 10 + in_place));
    CUDA(cudaMemcpyAsync(send, b->host, shard, cudaMemcpyHostToDevice, r->stream));
    NCCL(pncclAllGather(send, b->reference, count, types[t].type, r->comm, r->stream));
    NCCL(ncclAllGather(send, b->recv, count, types[t].type, r->comm, r->stream));
    /* The sender may reuse its buffer behind the call. */
    if (!in_place)
        CUDA(cudaMemsetAsync(send, 0xee, shard, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    compare(r, b, all, what);
}

static void body(struct rank *r)
{
    const struct limits *limit = r->arg;
    rank_open(r);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s] ? sizes[s] : LARGEST(r->nranks);
        if (size > limit->largest || size < limit->smallest)
            continue;
        size_t room = size + 8, all = room * (size_t)r->nranks;
        struct buffers b = {.host = malloc(room), .window = malloc(2 * WINDOW)};
        CUDA(cudaMalloc((void **)&b.send, room));
        CUDA(cudaMalloc((void **)&b.recv, all));
        CUDA(cudaMalloc((void **)&b.reference, all));
        for (int t = 0; t < 3; t++)
            for (int in_place = 0; in_place < 2; in_place++)
                for (int round = 0; round < (size > 2u << 20 ? 1 : 3); round++) {
                    size_t count = size / types[t].bytes;
                    once(r, &b, count ? count : 1, t, in_place, round);
                }
        CUDA(cudaFree(b.send));
        CUDA(cudaFree(b.recv));
        CUDA(cudaFree(b.reference));
        free(b.host);
        free(b.window);
    }
    rank_close(r);
}

int main(int argc, char **argv)
{
    struct limits limit = {.largest = argc > 2 ? strtoull(argv[2], NULL, 0) : SIZE_MAX,
                           .smallest = argc > 3 ? strtoull(argv[3], NULL, 0) : 0};
    int n = argc > 1 ? atoi(argv[1]) : 0;
    if (n < 1 || n > 64) {
        fprintf(stderr, "usage: gather_matrix RANKS [LARGEST_BYTES [SMALLEST_BYTES]]\n");
        return 2;
    }
    return ranks_run(n, 240, body, &limit);
}
