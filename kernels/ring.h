/* SPDX-License-Identifier: Apache-2.0 */
/* The copy-engine ring: one all-gather among the ranks of one host. docs/protocol.md, section 3,
 * has the protocol, why it can not deadlock, and what happens when a peer is slow or dead; flags.h
 * the words. Everything is enqueued at once; the host waits for nobody. Pieces are numbered over
 * the communicator's life, equally on all ranks.
 *
 * Streams of the ring: `publish` stages and corrects; `pull` copies, and moves a shard that
 * is vacated; `own` copies the own shard, with least priority, or `tail` does where nobody is
 * expected to wait for it; `tail` waits for what only the end needs: a wait that finds its word
 * behind another operation of the same stream takes longer (docs/measurements.md). All start after
 * what was on the application's stream at `entry`, and after the gather before.
 *
 * Not thread-safe: one caller at a time for one ring (plugin/ holds the lane's lock). */
#ifndef SLR_KERNELS_RING_H
#define SLR_KERNELS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"
#include "kernels/flags.h"

/* ---- how a gather is cut ---- */

/* Pieces are units of the ring, one staging slot each; chunks units of readiness, one event each, and
 * one copy where nothing is staged. From facts that are equal on all ranks. Sizes in bytes of one shard.
 *
 *   piece p of owner o   bytes [p * piece, min(shard, (p + 1) * piece)) of o's shard
 *   chunk q              the pieces [q * group, min(pieces, (q + 1) * group)) */
#define SLR_SLOTS 2 /* staging slots per rank: one is filled while the other is read */
#define SLR_MAX_CHUNK_EVENTS 1024

struct slr_plan {
    size_t shard;    /* bytes of one rank's shard, > 0 */
    size_t piece;    /* bytes of every piece but the last */
    uint32_t pieces; /* per shard, >= 1 */
    uint32_t group;  /* pieces per chunk, >= 1 */
    uint32_t chunks; /* per shard: ceil(pieces / group) */
    unsigned slots;  /* whose slots it goes through: of this class */
};

/* `most`: bytes of a piece at most. `wanted`: pieces per shard that the user asks for; 0: choose. */
struct slr_plan slr_plan_make(size_t shard, int nranks, size_t most, uint32_t wanted);

/* Cuts the pieces until each fits a slot of that many bytes; the chunks stay, but for a few bytes. */
void slr_plan_fit(struct slr_plan *plan, size_t slot);

/* Makes the pieces so small, and a chunk of each. */
void slr_plan_cut(struct slr_plan *plan, int nranks, size_t piece);

static inline size_t slr_plan_piece_begin(const struct slr_plan *plan, uint32_t piece)
{
    return (size_t)piece * plan->piece;
}

static inline size_t slr_plan_piece_bytes(const struct slr_plan *plan, uint32_t piece)
{
    size_t begin = slr_plan_piece_begin(plan, piece);
    return plan->shard - begin < plan->piece ? plan->shard - begin : plan->piece;
}

/* In how many equal pieces a shard arrives from another host; `wanted` as of slr_plan_make, where it is 0 more `small` ones.
 * Bytes of each but the last. */
#define SLR_ARRIVALS 64
size_t slr_arrival_bytes(size_t shard, uint32_t wanted, bool small);

/* Begin and end of chunk q in the shard, in bytes. */
static inline size_t slr_plan_chunk_begin(const struct slr_plan *plan, uint32_t q)
{
    return (size_t)q * plan->group * plan->piece;
}

static inline size_t slr_plan_chunk_end(const struct slr_plan *plan, uint32_t q)
{
    size_t end = (size_t)(q + 1) * plan->group * plan->piece;
    return q + 1 >= plan->chunks || end > plan->shard ? plan->shard : end;
}

/* ---- the ring ---- */

struct slr_recorded;
struct slr_reduce;
struct slr_timing;

/* What streams wait for of one gather. The events are the ring's, recorded again by a later gather. */
struct slr_arrival {
    CUevent finished;   /* all that it does is over */
    CUevent owned;      /* its own shard is there: copied, or added up */
    CUevent own_copied; /* its own shard is copied; not where it was in place */
    CUevent staged;     /* as many pieces as there are slots for are there; recorded if `stages` */
    CUevent settled;
    CUevent settling;     /* what it has expected is settled; NULL: nothing */
    CUevent *chunk_event; /* [chunk * (nranks - 1) + step - 1] */
    uint32_t chunk_events;
    uint32_t chunks;           /* of one of its shards */
    bool whole, once;          /* shards are copied whole, the last chunk's event stands for all; of all shards */
    bool stages;               /* for a peer, and parts of a GEMM are expected */
    bool early;                /* somebody waits for a chunk that is not the last of its shard */
    bool carrying;             /* slr_ring_carry has been called */
    bool restated;             /* `finished` has been recorded behind all of the carrier's events */
    struct slr_timing *timing; /* the caller's; NULL: it is not measured */
};

/* Gathers that are known apart while the streams behind them do not wait yet, most. */
#define SLR_TOGETHER 16

/* Staging slots of one size. */
struct slr_slots {
    _Atomic size_t bytes;          /* of one slot, equal on all ranks; 0: not connected yet */
    CUdeviceptr at[SLR_MAX_RANKS]; /* base of each rank's slots as this device sees them */
    CUdeviceptr twin;              /* more own slots: what is staged goes there as well (cache/staging.h); 0: none */
};

struct slr_ring {
    int rank, nranks;
    CUcontext ctx;      /* of this rank's device; streams and events belong to it */
    void *flags;        /* host address of the flag words (flags.h) */
    CUdeviceptr dflags; /* the same words as this device sees them */
    struct slr_slots slots[SLR_SLOT_CLASSES];
    _Atomic uint32_t issued; /* pieces enqueued so far; read by the house-keeping thread */
    /* ready(r, me) when all is settled that was expected of r, and ready(me, r) when all is corrected
     * that r has expected. Read likewise. */
    _Atomic uint64_t expected[SLR_MAX_RANKS], corrected[SLR_MAX_RANKS];
    /* The last piece of the latest reduce-scatter or all-reduce, and of the latest all-reduce; 0: there was none. */
    _Atomic uint32_t entered, spread;
    uint32_t staged; /* the latest piece put into an own slot for peers, outside of graphs, until a launch waits for it;
                      * 0: none */
    _Atomic bool opened; /* it has its streams and events */
    CUstream publish, pull;
    CUstream carrier; /* here the application's events are recorded that complete with the gather */
    CUstream own;     /* copies the own shard */
    CUstream tail;    /* waits for what only the end of the gather needs */
    CUstream visitor; /* stands for the application's streams of other contexts; NULL: not needed so far */
    CUstream aside;   /* of slr_gemm_aside, and what follows; NULL, 0: not needed so far */
    CUevent asked, apart;
    CUdeviceptr scratch;
    size_t scratch_bytes;
    CUevent entry, published;
    CUevent before;         /* what stands on the application's stream without the gather: slr_ring_carry */
    bool behind;            /* the entry of the next gather is behind it */
    unsigned entries;       /* times that `entry` has been recorded since it began */
    struct slr_arrival now; /* of the latest gather, or other operation */
    struct slr_arrival kept[SLR_TOGETHER - 1]; /* of earlier ones: slr_ring_keep */
    struct slr_recorded *recorded; /* its streams capture: the caller's (ring_record.h); NULL: they do not */
    const struct slr_reduce *code; /* the caller's, for SLR_MEMORY_NEAR (scatter.h: slr_copy); NULL: there is none */
};

/* How one peer's shard reaches this rank, and this rank's that peer, agreed call by call
 * (plugin/transfer/transfer.h); both ranks of a pair have the matching half. */
enum slr_source {
    SLR_FROM_SLOT,    /* copied out of the owner's staging slot */
    SLR_FROM_PLACE,   /* copied from where the owner's application has it: `from` */
    SLR_FROM_EXPECTED /* copied from where it is expected: `from`, or not at all; the owner may correct it */
};
enum slr_delivery {
    SLR_BY_SLOT,     /* this rank copies it to its slot */
    SLR_ZERO_COPY,   /* the reader takes it from `send`, which is not free before it has */
    SLR_AS_EXPECTED, /* likewise, and the reader has to be told that it is the right place */
    SLR_CORRECTED,   /* the reader takes something else, or nothing; this rank then writes it to `to` */
    SLR_DELIVERIES
};
/* What somebody is expected to wait for before the end of a gather; a wrong guess costs only time. */
enum slr_wanted { SLR_WANTS_CHUNKS, SLR_WANTS_SHARDS, SLR_WANTS_NOTHING };

/* Of a copy in a graph it can not change. */
enum slr_memory {
    SLR_MEMORY_PLAIN,   /* imports of what another process has from cuMemAlloc */
    SLR_MEMORY_VIRTUAL, /* of cuMemCreate */
    SLR_MEMORY_NEAR, /* what another device of this process has from cuMemAlloc: for kernels only (cache/staging.h) */
    SLR_MEMORIES
};

struct slr_route {
    enum slr_source source;
    enum slr_delivery delivery;
    CUdeviceptr from, to;               /* first byte of a shard, as this device sees it; 0: none */
    enum slr_memory from_kind, to_kind; /* of these, for recorded gathers (ring_record.h) */
};

/* One gather. Addresses are the application's; sizes in bytes. */
struct slr_gather {
    CUdeviceptr send, recv;
    /* Where the application has the shard, if it moves to its place in `recv`, which is `send`
     * then, and is sent from there; 0: it does not move. Free again behind slr_ring_wait_own. */
    CUdeviceptr vacated;
    CUstream stream; /* the application's */
    struct slr_plan plan;
    const struct slr_route *route; /* [nranks], read until slr_ring_finish; NULL: all by slots */
    enum slr_wanted wanted;        /* without chunks shards are copied whole where that can be */
    /* `send`, in place, is filled from outside meanwhile: event i comes behind so many bytes of it, from i times as many
     * on. NULL: it is there. */
    const CUevent *arrives;
    size_t arrival;
    unsigned beside; /* blocks of NCCL's kernels that bring this one and others, one after the other; 0: none */
    bool send_stays; /* a GEMM on `stream` may read `send` behind the gather's end: plugin/fuse/fuse.c knows */
};

/* Where the application has the shard. */
static inline CUdeviceptr slr_gather_source(const struct slr_gather *g)
{
    return g->vacated ? g->vacated : g->send;
}

/* The own shard's place in the receive buffer. */
static inline CUdeviceptr slr_gather_own(const struct slr_gather *g, int rank)
{
    return g->recv + (size_t)rank * g->plan.shard;
}

/* The latest gather's arrival becomes ring->kept[at], so that the next gather does not record its events again. That
 * one begins behind it, as any does. */
enum slr_status slr_ring_keep(struct slr_ring *ring, unsigned at);

/* Exchanges the two: functions of "the latest gather" are of the kept one until this is called again. */
void slr_ring_swap(struct slr_ring *ring, unsigned at);

/* Creates streams and events in `ring->ctx`, the current one. On failure nothing is left. */
enum slr_status slr_ring_open(struct slr_ring *ring);

/* Whether this device can write the words and wait for them: tries it on this rank's own. */
enum slr_status slr_ring_try(struct slr_ring *ring);

/* Makes `visitor`. */
enum slr_status slr_ring_open_visitor(struct slr_ring *ring);

/* Waits until its streams are idle, if need be until slr_ring_release from another thread; frees
 * all. */
void slr_ring_close(struct slr_ring *ring);

/* Marks the point of the application's stream after which the next gather may start; several times
 * for a group on several streams. `behind`: all that is on the stream now comes after the latest
 * gather. */
enum slr_status slr_ring_entry(struct slr_ring *ring, CUstream stream, bool behind);

/* The same with an event that the capture holds. */
enum slr_status slr_ring_enter_behind(struct slr_ring *ring, CUevent begun, bool behind);

/* After all slr_ring_entry of a group: makes `stream` wait for the marked points of all of them. */
enum slr_status slr_ring_wait_entries(struct slr_ring *ring, CUstream stream);

/* Makes `to` wait for what is on `from` now. Not part of any gather. */
enum slr_status slr_ring_wait_stream(struct slr_ring *ring, CUstream from, CUstream to);

/* Enqueues the gather: `begin` publishes the first pieces, `finish` does the rest. Between the two
 * route[].source may still be filled in, as an owner that is asked later has likelier said where
 * its shard is. Anything but SLR_OK leaves the ring unusable: peers would wait for what was not
 * enqueued. */
enum slr_status slr_ring_begin(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_ring_finish(struct slr_ring *ring, const struct slr_gather *g);

/* Of a gather that is in a graph, what the two do besides enqueueing: number its pieces, with
 * g->route[].delivery, then with .source. `stream` waits until the slots are free, before the
 * launch. The graph has been launched, and `behind` recorded: its gathers are over when that is. */
void slr_ring_number(struct slr_ring *ring, const struct slr_gather *g);
void slr_ring_expects(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_ring_await_slots(struct slr_ring *ring, CUstream stream);
enum slr_status slr_ring_launched(struct slr_ring *ring, CUevent behind);

/* Makes `stream` wait for everything that the latest gather does, and for the events that carry it.
 * Work put on it then sees the whole gather, and may overwrite `send`. Measured: the time that it
 * stands still goes to the record. */
enum slr_status slr_ring_join(struct slr_ring *ring, CUstream stream);
enum slr_status slr_ring_join_measured(struct slr_ring *ring, CUstream stream);

/* Behind that, on a stream of another context: something that a wait for all of that context waits for. Of a green one the
 * driver (580) passes over events that a stream waits for with nothing behind them. */
enum slr_status slr_ring_stand(struct slr_ring *ring, CUstream stream);

/* Whether what slr_ring_join() waits for is over: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or what is
 * wrong. `carried`: slr_ring_carry() has been called; `aside`: a GEMM runs aside. From any thread:
 * it may be the next gather's answer. */
CUresult slr_ring_query(const struct slr_ring *ring, bool carried, bool aside);

/* For an event that is recorded on `stream` behind the latest gather, not joined to it; once for
 * each. What stands on `stream` now becomes `before`, and what is put on the carrier then comes
 * after that and after the gather (docs/protocol.md, Events). `again`: likewise of what the
 * communicator has put on `stream` since the last time. */
enum slr_status slr_ring_carry(struct slr_ring *ring, CUstream stream, bool again);

/* After slr_ring_carry: makes another stream wait for `before`, but not for the gather. */
enum slr_status slr_ring_wait_before(struct slr_ring *ring, CUstream stream);

/* The own shard is where it belongs, or moves there first: NCCL's in-place. */
bool slr_ring_in_place(const struct slr_ring *ring, const struct slr_gather *g);

/* Makes `stream` wait for the copy of the own shard, which is not in place or moves there. */
enum slr_status slr_ring_wait_own(struct slr_ring *ring, CUstream stream);

/* Where ring->now.stages: makes `stream` wait for as many pieces of the staging as there are slots for. */
enum slr_status slr_ring_wait_staged(struct slr_ring *ring, CUstream stream);

/* Makes `stream` wait until chunk `q` of the shard that arrives at step `step` (1 .. nranks - 1)
 * has been copied, at least. Notes in ring->now.early whether that was worth a chunk. */
enum slr_status slr_ring_wait_chunk(struct slr_ring *ring, CUstream stream, uint32_t q, int step);

bool slr_ring_idle(struct slr_ring *ring); /* true when nothing of this rank is in flight; also before slr_ring_open */

/* ---- by the words alone, without a call of CUDA: ring_words.c ---- */

/* This device has copied everything that it was asked to; has completed piece `piece` and all
 * before it, in both directions; has read all of the peer's slots. This rank waits for nothing that
 * `peer` has to do. */
bool slr_ring_complete(const struct slr_ring *ring);
bool slr_ring_reached(const struct slr_ring *ring, uint32_t piece);
bool slr_ring_has_read(const struct slr_ring *ring, int peer);
bool slr_ring_peer_served(const struct slr_ring *ring, int peer);

/* True when this device waits for a peer: it has come to a piece, having said something of it to
 * somebody, that the peer has not given. False while work that stands before the gather holds it
 * up. A raised word (slr_ring_release) says nothing. */
bool slr_ring_waits(const struct slr_ring *ring);

/* Ends every wait of this rank's streams for `peer`: what is copied then is not the gather's
 * result, and the communicator is in error before (docs/protocol.md, 5). To be repeated until idle:
 * a late write of the peer may lower a word again. */
void slr_ring_release(struct slr_ring *ring, int peer);

/* Only the waits of the sending part: this rank writes into nobody's memory any more when that is
 * idle. What receives, and with it every stream that waits for the gather, stays held. */
void slr_ring_release_sends(struct slr_ring *ring, int peer);
bool slr_ring_sends_idle(struct slr_ring *ring);

#endif
