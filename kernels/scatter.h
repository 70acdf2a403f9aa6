/* SPDX-License-Identifier: Apache-2.0 */
/* One reduce-scatter or all-reduce among the ranks of one host, over the words, slots and streams of
 * the ring, between gathers of the same communicator; and its sums. ring_scatter.c has the protocol,
 * docs/scatter.md the whole.
 *
 * Every rank has nranks shards in `send`, and gets the sum of all ranks' shard number `rank`; of an
 * all-reduce the sums of all shards, and there the last shards may be shorter than the others, or
 * empty. A shard travels by copy engines into the receiver's staging slots, where each sender has an
 * area of its own; the receiver adds the contributions in the order of the ranks, its own from `send`:
 *
 *   out[i] = round((in[0][i] + in[1][i] + ... + in[n - 1][i]) / divisor)
 *
 * in fp32, from the left, rounded once, to nearest even: the same bits in every run, for any number
 * of blocks and any alignment. Subnormal numbers, infinities and NaN come out as IEEE additions
 * give them; which NaN is the device's choice.
 *
 * Not thread-safe, like the ring, where nothing else is said. */
#ifndef SLR_KERNELS_SCATTER_H
#define SLR_KERNELS_SCATTER_H

#include "kernels/ring.h"

/* ---- sums on the device: reduce.c; the code is reduce.cu, kept as PTX for sm_80 and later ---- */

/* SLR_REDUCE_BYTE: not added, but moved as they are, of one contribution to one place. */
enum slr_reduce_type { SLR_REDUCE_BF16, SLR_REDUCE_F16, SLR_REDUCE_F32, SLR_REDUCE_BYTE, SLR_REDUCE_TYPES };

#define SLR_REDUCE_BLOCKS 16 /* what blocks == 0 stands for */

/* The kernels in one context, the caller's; all zero: not loaded. One thread at a time loads or
 * unloads; several may call slr_reduce(). Of a context that was destroyed only the memory is left,
 * to be set to zero. */
struct slr_reduce {
    CUmodule module;
    CUfunction function[SLR_REDUCE_TYPES];
};

/* Loads the kernels into the current context, once. May wait for all work of the device, and
 * compile: so it is called when nothing that this process has enqueued waits for a peer, as at
 * connection. Breaks no capture. SLR_ABSENT: the driver lacks a function (not logged). SLR_CUDA,
 * SLR_NOMEM: it could not load the code: CUDA_DISABLE_PTX_JIT, or a device older than sm_80. After
 * an error *r is all zero. */
enum slr_status slr_reduce_load(struct slr_reduce *r);

/* In that context; may wait likewise. Executable graphs that hold a launch must be gone. */
void slr_reduce_unload(struct slr_reduce *r);

/* Enqueues the sum of `n` contributions of `count` elements (>= 0) on a stream of the context,
 * which is current; in a capture the launch becomes a kernel node. SLR_ABSENT: not loaded, or no
 * kernel for the type or n (not logged).
 *
 * in       n device addresses, read before the call returns. They and `out` are aligned to the type;
 *          where they do not all lie alike with respect to 16 bytes, the sum is slower
 * out      not overlapping an input, or exactly one or several of them
 * also     0, or where the sum is written as well, as `out`
 * divisor  1 for a sum, n for an average: one division in fp32 after the sum
 * blocks   of 512 threads, at most that many run at a time; 0: SLR_REDUCE_BLOCKS */
enum slr_status slr_reduce(const struct slr_reduce *r, CUstream stream, enum slr_reduce_type type, void *out,
                           void *also, const void *const in[], int n, size_t count, float divisor, unsigned blocks);

/* A copy by SLR_REDUCE_BLOCKS blocks of a kernel, between memory that the context may reach; and the same
 * in the node `node` of an executable graph, that a capture has made of such a copy. */
enum slr_status slr_copy(const struct slr_reduce *r, CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes);
enum slr_status slr_copy_set(const struct slr_reduce *r, CUgraphExec exec, CUgraphNode node, CUdeviceptr to,
                             CUdeviceptr from, size_t bytes);

/* `near`: SLR_MEMORY_NEAR, or what is to leave multiprocessors to such copies. Else as the driver copies. */
static inline enum slr_status slr_ring_copy(const struct slr_ring *ring, CUstream stream, bool near, CUdeviceptr to,
                                            CUdeviceptr from, size_t bytes)
{
    return near ? slr_copy(ring->code, stream, to, from, bytes) : SLR_CU(cuMemcpyAsync, to, from, bytes, stream);
}

/* ---- the reduce-scatter: ring_scatter.c ---- */

/* Some bytes of one shard of `send`. */
struct slr_scatter_part {
    int shard;
    size_t at, bytes; /* in the shard */
    CUevent done;     /* recorded behind what computes it; NULL: it is there at the entry */
};

struct slr_scatter {
    CUdeviceptr send, recv; /* recv may be the own shard of send; else it has nothing in common with send */
    /* Of an all-reduce, where the sums of all shards go: send itself, or nothing in common with it; recv is the own
     * shard's place there. 0: it is a reduce-scatter. */
    CUdeviceptr all;
    /* From shard to shard of send, and of all, bytes; plan.shard, or more: of each shard only a piece. */
    size_t stride;
    struct slr_plan plan;         /* slr_scatter_plan(), with its slots */
    size_t length[SLR_MAX_RANKS]; /* of each shard, or piece: plan.shard, or less */
    enum slr_reduce_type type;
    size_t elem;   /* bytes */
    float divisor; /* of the sum */
    const struct slr_reduce *reduce;
    const struct slr_scatter_part *part; /* all of `send`, each byte once, in the order in which they complete */
    unsigned parts;
    int earlier;   /* parts of a shard that were in pieces before this one: for the timing alone */
    CUevent entry; /* of the call's stream, where parts may be sent before; NULL: the ring begins behind it */
    /* Of an all-reduce whose parts all have events: results may be written as soon as they are there, as nobody can use
     * what lies at `all` before the call is over (ring_scatter.c). */
    bool early;
    /* Of an all-reduce among more ranks than the ring's: puts on `pull` what makes of the sum of a part, which the ring's
     * ranks have added, that of all, in place; before any other rank is told of it. NULL: it is. */
    enum slr_status (*complete)(void *of, CUstream pull, CUdeviceptr at, size_t bytes);
    void *of;
    /* `recv` is the caller's own memory, which nobody else sees: sums are taken as soon as their parts are there, and the
     * ranks do not meet. Equal on all ranks. */
    bool apart;
    CUdeviceptr arrives[SLR_MAX_RANKS]; /* where rank r writes its shards: the own slots, in the mapping that r has */
};

/* How a shard counts: nearly equal pieces, far more than a GEMM has parts, and always as many; of a small shard some
 * are empty. shard > 0. The plan's `piece` says nothing. */
struct slr_plan slr_scatter_plan(size_t shard);

/* Where so many pieces end, bytes of the shard: between elements. And of its first bytes: so many pieces end there or
 * before, and it takes so many to have them all: not more, where the bytes end with a piece. */
size_t slr_scatter_bound(const struct slr_plan *plan, uint32_t pieces);
uint32_t slr_scatter_whole(const struct slr_plan *plan, size_t bytes);
uint32_t slr_scatter_touched(const struct slr_plan *plan, size_t bytes);

/* So many bytes of a shard, of all other ranks, fit into slots of `slot` bytes: a multiple
 * of every element. Uniform. What is larger goes piece by piece, each an operation of its own. And the other way
 * round: of what size slots have to be for whole shards. */
size_t slr_scatter_most(size_t slot, int nranks);
size_t slr_scatter_slot(size_t shard, int nranks);

/* Enqueues all of it. Behind slr_ring_entry; with s->entry behind slr_ring_enter_behind, or,
 * outside of captures, nothing. slr_ring_join() then waits for the sums and for `send`. Anything
 * but SLR_OK leaves the ring unusable. Spans: `wait` and `push` of the publish stream, with the
 * receiver and the part's number in its shard, `wait` and `sum` of the pull stream, with the part's
 * number; its first wait is for the slots; of an all-reduce `wait` and `pull` of the stream that copies the sums, with
 * their owner and the part's number. */
enum slr_status slr_ring_scatter(struct slr_ring *ring, const struct slr_scatter *s);

/* Of one that is in a graph, what slr_ring_scatter does besides enqueueing: numbers its pieces. */
void slr_ring_scatter_number(struct slr_ring *ring, const struct slr_plan *plan, bool all);

/* ---- sums once more on the host, for SLIPRING_VERIFY: reduce_check.c ---- */

/* In host memory, aligned to the type. */
struct slr_checked_sums {
    enum slr_reduce_type type;
    int n;
    float divisor;                 /* slr_reduce()'s */
    const void *in[SLR_MAX_RANKS]; /* the first n: contributions, in the order of the ranks */
    const void *ours, *other;      /* the device's sums; those that were made in another way */
    size_t count;
};

/* BITS: ours is not what the device has to write; else FAR: the other one is too far away. */
enum slr_sum_fault { SLR_SUM_RIGHT, SLR_SUM_BITS, SLR_SUM_FAR };

struct slr_sum_found {
    enum slr_sum_fault fault;
    size_t at;           /* element */
    uint32_t have, want; /* ours, and what it should be; FAR: and the other one */
};

/* The first element with a fault, in any mode of rounding and subnormals of the thread;
 * SLR_SUM_RIGHT: there is none. */
struct slr_sum_found slr_reduce_check(const struct slr_checked_sums *s);

#endif
