/* SPDX-License-Identifier: Apache-2.0 */
/* What the copy engines of several GPUs give an all-gather, by who copies and in which order: the evidence for the
 * order of the ring (kernels/ring.h).
 *
 * One process, a context for each device. A way is enqueued ROUNDS times with nothing between the rounds, for ranks
 * that begin together, and for ranks that begin a part of a piece apart from each other, as those of a program do.
 * Prints GB/s received by each rank. Plain driver calls, found with dlopen: it builds without a toolkit's libraries.
 *
 * usage: links [SHARD_MIB [PIECE_MIB [RANKS]]]      [256, 32, as many as there are devices, at most 8]
 */
#include <stdbool.h>
#include <string.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxEnablePeerAccess)                                                                                           \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemcpyAsync)                                                                                                   \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamSynchronize)

#include "driver.h"

enum { MAX_RANKS = 8, ROUNDS = 10, REPEATS = 3 };

static struct rank {
    CUcontext ctx;
    CUdeviceptr send, recv, spare;
    CUstream stream[MAX_RANKS];
} rank_of[MAX_RANKS];
static int ranks;
static size_t shard, piece;

/* Which rank copies the shard of `owner` to `reader` that is at step `step` of the reader, and on which of its streams.
 */
struct way {
    const char *name;
    bool (*reader_copies)(int reader, int owner);
    bool spread; /* a stream for each peer */
};

static bool always(int reader, int owner)
{
    (void)reader;
    (void)owner;
    return true;
}

static bool never(int reader, int owner)
{
    return !always(reader, owner);
}

/* As when each pair is left to the one that comes last, and the ranks come in a fixed order. */
static bool lower(int reader, int owner)
{
    return reader < owner;
}

static const struct way ways[] = {{"pull, one stream", always, false},
                                  {"pull, a stream for each peer", always, true},
                                  {"push, one stream", never, false},
                                  {"push, a stream for each peer", never, true},
                                  {"each pair by its lower rank", lower, false}};

static void copy(const struct way *way, int reader, int step, size_t at)
{
    int owner = (reader + step) % ranks;
    bool pull = way->reader_copies(reader, owner);
    struct rank *by = &rank_of[pull ? reader : owner];
    CUstream stream = by->stream[way->spread ? step : pull ? 0 : 1];
    CHECK(cu.cuCtxSetCurrent(by->ctx));
    CHECK(cu.cuMemcpyAsync(rank_of[reader].recv + (size_t)owner * shard + at, rank_of[owner].send + at, piece, stream));
}

/* Rank r begins later by r / ranks of what it takes to read a piece, about: a local copy of several pieces. */
static void begin_apart(void)
{
    for (int r = 0; r < ranks; r++) {
        CHECK(cu.cuCtxSetCurrent(rank_of[r].ctx));
        for (int s = 0; s < ranks; s++)
            for (int i = 0; i < 4 * r; i++)
                CHECK(cu.cuMemcpyAsync(rank_of[r].spare, rank_of[r].send, piece / (size_t)ranks, rank_of[r].stream[s]));
    }
}

static void synchronise(void)
{
    for (int r = 0; r < ranks; r++) {
        CHECK(cu.cuCtxSetCurrent(rank_of[r].ctx));
        for (int s = 0; s < ranks; s++)
            CHECK(cu.cuStreamSynchronize(rank_of[r].stream[s]));
    }
}

/* Microseconds of ROUNDS gathers, the best of REPEATS. */
static double run(const struct way *way, bool apart)
{
    double best = 0;
    for (int repeat = 0; repeat <= REPEATS; repeat++) {
        double begin = now_us();
        if (apart)
            begin_apart();
        for (int round = 0; round < ROUNDS; round++)
            for (size_t at = 0; at < shard; at += piece)
                for (int step = 1; step < ranks; step++)
                    for (int r = 0; r < ranks; r++)
                        copy(way, r, step, at);
        synchronise();
        double took = now_us() - begin;
        if (repeat > 0 && (repeat == 1 || took < best)) /* the first one warms up */
            best = took;
    }
    return best;
}

static void prepare(int r)
{
    CUdevice device;
    CHECK(cu.cuDeviceGet(&device, r));
    CHECK(cu.cuDevicePrimaryCtxRetain(&rank_of[r].ctx, device));
    CHECK(cu.cuCtxSetCurrent(rank_of[r].ctx));
    CHECK(cu.cuMemAlloc(&rank_of[r].send, shard));
    CHECK(cu.cuMemAlloc(&rank_of[r].recv, shard * (size_t)ranks));
    CHECK(cu.cuMemAlloc(&rank_of[r].spare, piece));
    for (int s = 0; s < ranks; s++)
        CHECK(cu.cuStreamCreate(&rank_of[r].stream[s], CU_STREAM_NON_BLOCKING));
}

static void connect_all(void)
{
    for (int r = 0; r < ranks; r++)
        for (int peer = 0; peer < ranks; peer++)
            if (peer != r) {
                CHECK(cu.cuCtxSetCurrent(rank_of[r].ctx));
                CHECK(cu.cuCtxEnablePeerAccess(rank_of[peer].ctx, 0));
            }
}

int main(int argc, char **argv)
{
    int devices = 0;
    load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGetCount(&devices));
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 256, piece_mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 32;
    ranks = argc > 3 ? atoi(argv[3]) : devices < MAX_RANKS ? devices : MAX_RANKS;
    if (ranks < 2 || ranks > MAX_RANKS || ranks > devices || !piece_mib || !mib || mib % piece_mib) {
        fprintf(stderr, "links: wants 2 to %d ranks, here up to %d, and a shard of whole pieces\n", MAX_RANKS, devices);
        return devices < 2 ? 77 : 2;
    }
    shard = mib << 20;
    piece = piece_mib << 20;
    for (int r = 0; r < ranks; r++)
        prepare(r);
    connect_all();
    printf("%d ranks, shards of %zu MiB in pieces of %zu MiB, GB/s received by each rank\n\n", ranks, mib, piece_mib);
    printf("| way | begin together | begin apart |\n| --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double bytes = (double)shard * (ranks - 1) * ROUNDS;
        printf("| %s | %.0f | %.0f |\n", ways[i].name, bytes / run(&ways[i], false) / 1e3,
               bytes / run(&ways[i], true) / 1e3);
    }
    return 0;
}
