/* SPDX-License-Identifier: Apache-2.0 */
/* The copy-engine ring: one all-gather among the ranks of one host.
 *
 * Data path (design rules R3, R4). At step j rank r pulls from rank (r + j) mod N, each shard piece
 * by piece. Where its owner's program has it is what the peer copies from, if the two hosts have
 * found each other in time and the peer has mapped that memory (SLR_FROM_PLACE):
 *
 *   pull stream, o = (me + j) mod N, for every step j where nothing else is said:
 *     meet     write ready(me, r) = last piece for every r; wait ready(o, me) for every o
 *     pieces   copy o's shard -> recv; record the chunk's event
 *     done     write done(o, me) = last for every o
 *   tail stream:
 *     conclude wait for the copies; wait broken(o, me) = 0 for every o;
 *              wait done(me, r) >= last for every r: `send` is free; record finished
 *
 * So a gather is three calls with words and a copy for each piece. The waits of the end have a
 * stream of their own because one that finds its word behind another operation of the same stream
 * takes longer (docs/measurements.md). Where all shards are read where they lie and nobody is
 * expected to wait for chunks (slr_gather.wanted), there is one copy for each shard.
 *
 * A reader that comes first does not know where the owner's shard is. It copies from where it
 * expects it (SLR_FROM_EXPECTED; plugin/transfer/expect.h): reading is harmless. The owner, when it
 * comes, knows whether that was right. If so it says with `ready` that the shard is settled
 * (SLR_AS_EXPECTED). If not (SLR_CORRECTED), it waits until the wrong bytes have been copied, writes
 * the right ones over them, and says `settled` then:
 *
 *   reader                                          owner's publish stream
 *     pull: copy the expected place -> recv           wait done(me, r) >= last
 *           write done(o, me) = last                  copy send -> recv of r
 *     tail: wait settled(o, me)                       write settled(me, r)
 *
 * Memory that the peer can not map goes through staging (SLR_BY_SLOT, SLR_FROM_SLOT): the owner
 * copies its shard, piece by piece, into one of two slots that all peers have mapped:
 *
 *   owner's publish stream, piece seq               reader's pull stream, piece seq
 *     wait done(me, r) >= seq - 2 of the slot's       wait ready(o, me) >= seq
 *     readers                                         copy slot of o -> recv
 *     copy send -> slot seq mod 2                     write done(o, me) = seq
 *     write ready(me, r) = seq                        record the chunk's event
 *
 * A copy within a device is a kernel, which waits behind a GEMM that fills the device: staging is
 * the exception.
 *
 * Where ranks share a device, owners write into the receive buffer of a peer that came first
 * (SLR_BY_PUSH, SLR_ARRIVES), after its device has said that the buffer is free (open). Between
 * devices they do not: the copy engines of one device move its reads and its writes one after the
 * other (measured on H200), so that whoever comes last would take twice as long.
 *
 * The ways may differ from pair to pair and from call to call.
 *
 * seq counts pieces over the communicator's life, equal on all ranks. Everything is enqueued at
 * once; the host waits for nobody.
 *
 * The ranks of a gather begin to pull together, when all shards have their first piece ready. A
 * copy engine moves 362 GB/s from a source that it has to itself and half of that when another rank
 * reads there as well; ranks that begin at different times stay out of step, so that some sources
 * are read twice while others are idle. On four H200 with NVLink this made a gather of 4 x 256 MiB
 * take 4.3 ms instead of 2.6. The price: while a rank is late, the shards of those that are there
 * are not moved yet. NCCL's ring waits for a late rank, too.
 *
 * Why it can not deadlock: every rank enqueues the same sequence for each call,
 *
 *   publish(1) publish(2) meet pull(1) publish(3) pull(2) ... pull(P) done correct settle conclude
 *
 * calls follow one another in the communicator's order, and each wait is for something that stands
 * earlier in that sequence: pull(s) needs the peers' publish(s) and meet, publish(s) needs the
 * peers' pull(s - 2) or, of an earlier gather, done; correct needs the peers' done; settle needs the
 * peers' correct or meet; conclude needs the peers' done, and this rank's copies. Hence the earliest
 * operation of all ranks that has not run can always run, also when all streams share one hardware
 * queue (CUDA_DEVICE_MAX_CONNECTIONS=1).
 *
 * A push waits for open(r, me), which r writes before everything else of the same gather.
 *
 * Stream ordering: the pulls, the staging copy and the copy of the own shard start after what was
 * on the application's stream at `entry`, and after the gather before. The own shard has a stream
 * of its own, of least priority, and waits for nobody; or it is copied on the tail stream behind
 * meet, where nobody is expected to wait for it (SLR_WANTS_NOTHING). No stream of the ring but the
 * end of the gather waits for it, so it adds nothing to the argument above. A shard that moves out of
 * the application's memory (vacated) is copied first of all, on the pull stream, and waits for nobody
 * there; what is published, ready and staged comes behind it. After
 * slr_ring_join(stream), work put on the stream sees the whole gather, and may overwrite `send`.
 *
 * Failure: what a rank has published stays as it is until its readers have said `done`. A rank that
 * has failed breaks that when its waits are released, so it says so first, in `broken`. Its readers
 * look at that word behind the copies, before the gather is over: copies that ended before the word
 * was set are right, and after that the reader's streams are held. (A part of a GEMM may have read
 * wrong bytes by then; its stream waits for the gather behind the parts, so nobody sees the
 * result.) So a rank that was stopped, or had other work before the gather, completes nothing wrong
 * when its peers have given up meanwhile.
 *
 * A wait for a peer that is gone is ended by the host, slr_ring_release(), which raises the words
 * that this rank's device waits for. What is copied after that is not the gather's result; the
 * communicator is in error before the words are raised, and those that hold the application's
 * streams are raised only when the application has been told (plugin/lifecycle/watchdog.c).
 *
 * Measuring: `timing` follows the three lanes of the gather (timing.h). The stamp behind a staging
 * copy or a push stands before the word that tells the peer, and the one behind a pull before the
 * chunk's event, so that what waits for a copy is never seen to run before it has ended; they add
 * nothing that waits.
 *
 * Not thread-safe: one caller at a time for one ring (plugin/ holds the communicator's lock).
 */
#ifndef SLR_KERNELS_RING_H
#define SLR_KERNELS_RING_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"
#include "kernels/plan.h"
#include "kernels/timing.h"

#define SLR_MAX_RANKS 64

struct slr_recorded;

struct slr_ring {
    int rank, nranks;
    CUcontext ctx;                    /* of this rank's device; streams and events belong to it */
    void *flags;                      /* host address of the flag words (flags.h) */
    CUdeviceptr dflags;               /* the same words as this device sees them */
    _Atomic size_t slot;              /* bytes of one slot, equal on all ranks; 0: not connected yet */
    CUdeviceptr slots[SLR_MAX_RANKS]; /* base of each rank's slots as this device sees them */
    /* More own slots: what is staged goes there as well (cache/staging.h). 0: none. */
    CUdeviceptr twin;
    _Atomic uint32_t issued; /* pieces enqueued so far; read by the house-keeping thread */
    /* ready(r, me) when all is settled that was copied from expected places of r, and ready(me, r)
     * when all is corrected that r has copied. Likewise. */
    _Atomic uint64_t expected[SLR_MAX_RANKS], corrected[SLR_MAX_RANKS];
    _Atomic uint32_t entered; /* the last piece of the latest reduce-scatter; 0: there was none */
    uint32_t
        staged; /* the latest piece that was copied to a slot outside of graphs, until a launch waits for it; 0: none */
    _Atomic bool opened; /* it has its streams and events */
    CUstream publish, pull;
    CUstream carrier; /* here the application's events are recorded that complete with the gather */
    CUstream own;     /* copies the own shard */
    CUstream tail;    /* waits for what only the end of the gather needs */
    /* gemm_aside.h; NULL, 0: not needed so far. */
    CUstream aside;
    CUevent asked, apart;
    CUdeviceptr scratch;
    size_t scratch_bytes;
    CUevent entry, published, owned, settled, finished;
    /* What stands on the application's stream without the gather: slr_ring_carry. */
    CUevent before;
    bool carrying;        /* that has been called for the latest gather */
    bool restated;        /* `finished` has been recorded behind all of the carrier's events */
    bool behind;          /* the entry of the next gather is behind it */
    unsigned entries;     /* times that `entry` has been recorded since it began */
    CUevent own_copied;   /* its own shard is copied; not where it was in place */
    uint32_t chunks;      /* of one of its shards */
    bool whole, once;     /* shards are copied whole, the last chunk's event stands for all; of all shards */
    bool early;           /* somebody waits for a chunk that is not the last of its shard */
    CUevent settling;     /* what it has copied from expected places is right; NULL: it has not */
    CUevent *chunk_event; /* of the latest gather, [chunk * (nranks - 1) + step - 1] */
    uint32_t chunk_events;
    struct slr_timing *timing; /* of the latest gather, the caller's; NULL: it is not measured */
    /* Its streams capture: what of the gather depends on the call, the caller's (ring_record.h). NULL: no. */
    struct slr_recorded *recorded;
};

/* How one peer's shard reaches this rank, and this rank's shard that peer. plugin/transfer/transfer.h
 * agrees on it, call by call; both ranks of a pair have the matching half. */
enum slr_source {
    SLR_FROM_SLOT,     /* copied out of the owner's staging slot */
    SLR_FROM_PLACE,    /* copied from where the owner's application has it: `from` */
    SLR_FROM_EXPECTED, /* copied from where it is expected: `from`; the owner may correct it */
    SLR_ARRIVES        /* the owner copies it into this rank's receive buffer */
};
enum slr_delivery {
    SLR_BY_SLOT,     /* this rank copies it to its slot */
    SLR_ZERO_COPY,   /* the reader takes it from `send`, which is not free before it has */
    SLR_AS_EXPECTED, /* likewise, and the reader has to be told that it is the right place */
    SLR_CORRECTED,   /* the reader takes something else; this rank then writes it to `to` */
    SLR_BY_PUSH,     /* this rank copies it to `to`, its place in the reader's receive buffer */
    SLR_DELIVERIES
};
/* What somebody is expected to wait for before the end of a gather. What is waited for all the same
 * is waited for too long, and that is all. */
enum slr_wanted { SLR_WANTS_CHUNKS, SLR_WANTS_SHARDS, SLR_WANTS_NOTHING };

/* Of a copy in a graph this can not change. */
enum slr_memory {
    SLR_MEMORY_PLAIN,   /* of cuMemAlloc, and imports of such memory */
    SLR_MEMORY_VIRTUAL, /* of cuMemCreate */
    SLR_MEMORIES
};

struct slr_route {
    enum slr_source source;
    enum slr_delivery delivery;
    CUdeviceptr from, to;               /* first byte of a shard, as this device sees it */
    enum slr_memory from_kind, to_kind; /* of these, for recorded gathers (ring_record.h) */
};

/* One gather. Addresses are the application's; sizes in bytes. */
struct slr_gather {
    CUdeviceptr send, recv;
    /* Where the application has the shard, if it moves to its place in `recv` first and is sent from there: `send` is that
     * place then, and the application may have this memory back sooner (slr_ring_wait_own). 0: it does not move.
     * slr_gather_source() is the application's in either case. */
    CUdeviceptr vacated;
    CUstream stream; /* the application's */
    struct slr_plan plan;
    const struct slr_route *route; /* [nranks], read until slr_ring_finish; NULL: all by slots */
    /* Without chunks shards are copied whole where that can be. */
    enum slr_wanted wanted;
    /* For a GEMM on `stream`: it may read `send` behind the gather's end. Only the ring's owner knows
     * (plugin/fuse/fuse.c). */
    bool send_stays;
};

static inline CUdeviceptr slr_gather_source(const struct slr_gather *g)
{
    return g->vacated ? g->vacated : g->send;
}

/* The own shard's place in the receive buffer. */
static inline CUdeviceptr slr_gather_own(const struct slr_gather *g, int rank)
{
    return g->recv + (size_t)rank * g->plan.shard;
}

/* Creates streams and events in `ring->ctx`, which must be current. The other fields are set by the
 * caller. On failure nothing is left. */
enum slr_status slr_ring_open(struct slr_ring *ring);

/* The words are only useful if this device can write and wait for them: tries it on this rank's own
 * words. */
enum slr_status slr_ring_try(struct slr_ring *ring);

/* Waits until its streams are idle (bounded only by slr_ring_release from another thread), then
 * frees streams and events. */
void slr_ring_close(struct slr_ring *ring);

/* Marks the point of the application's stream after which the next gather may start. Called once or
 * (for a group of calls on several streams) several times, before slr_ring_begin. `behind`: all that
 * is on the stream now comes after the latest gather, so that need not be waited for again. */
enum slr_status slr_ring_entry(struct slr_ring *ring, CUstream stream, bool behind);

/* The same with an event in the stead of the point of a stream: one that the capture holds. */
enum slr_status slr_ring_enter_behind(struct slr_ring *ring, CUevent begun, bool behind);

/* After all slr_ring_entry of a group: makes `stream` wait for the marked points of all its
 * streams. */
enum slr_status slr_ring_wait_entries(struct slr_ring *ring, CUstream stream);

/* Makes `to` wait for what is on `from` now. Not part of any gather. */
enum slr_status slr_ring_wait_stream(struct slr_ring *ring, CUstream from, CUstream to);

/* Enqueues the gather, in two steps with the same `g`: `begin` publishes the first pieces, `finish`
 * does the rest. Anything but SLR_OK leaves the ring unusable: peers would wait for what was not
 * enqueued.
 *
 * Between the two, route[].source may still be filled in: the later an owner is asked where its
 * shard is, the likelier it has said so. SLR_ARRIVES has to be there before `begin`, which tells
 * the owner that it may write. */
enum slr_status slr_ring_begin(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_ring_finish(struct slr_ring *ring, const struct slr_gather *g);

/* Of a gather that is in a graph (ring_record.h), what slr_ring_begin and slr_ring_finish do besides
 * enqueueing: number its pieces; before that g->route[].delivery, before slr_ring_expects
 * g->route[].source as well. Before the launch `stream` waits until the slots are free: in the graph
 * nothing says so (ring_record.h). And when a graph with the latest gathers has been launched, and
 * `behind` been recorded behind that: they are over when it is. */
void slr_ring_number(struct slr_ring *ring, const struct slr_gather *g);
void slr_ring_expects(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_ring_await_slots(struct slr_ring *ring, CUstream stream);
enum slr_status slr_ring_launched(struct slr_ring *ring, CUevent behind);

/* Makes `stream` wait for everything that the latest gather does, and for the events that carry it:
 * what is put on the stream behind them must not be seen to end before them. */
enum slr_status slr_ring_join(struct slr_ring *ring, CUstream stream);

/* The same; the time that the stream stands still for it is the gather's, in its record. */
enum slr_status slr_ring_join_measured(struct slr_ring *ring, CUstream stream);

/* Whether what slr_ring_join() waits for is over: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or what is wrong.
 * `carried`: slr_ring_carry() has been called; `aside`: a GEMM runs aside (gemm_aside.h). From any
 * thread, beside the ring's user: then it may be the answer for the next gather already. */
CUresult slr_ring_query(const struct slr_ring *ring, bool carried, bool aside);

/* For an event that is recorded on `stream` behind the latest gather, which has not been joined to
 * it; once for each. What stands on `stream` now becomes `before` (what stood there at the gather's
 * entry, and what sees nothing of it, such as allocations), and what is put on the carrier from now
 * on comes after that and after the gather.
 *
 * It can not deadlock: the carrier holds, gather after gather, a wait for the application's stream
 * up to that gather and a wait for the gather. Both stand earlier in the order of enqueueing, and
 * the pull stream waits for both before it starts the next gather, so nothing that the carrier's
 * order adds is new. `again`: an operation of the same communicator has been put on `stream` since the
 * last time, and the event has to come after that, too. The next gather waits for it as well, as NCCL
 * orders them, so what is said above holds. */
enum slr_status slr_ring_carry(struct slr_ring *ring, CUstream stream, bool again);

/* After slr_ring_carry: makes another stream wait for `before`, but not for the gather. */
enum slr_status slr_ring_wait_before(struct slr_ring *ring, CUstream stream);

/* The own shard is where it belongs, or moves there first: NCCL's in-place. */
bool slr_ring_in_place(const struct slr_ring *ring, const struct slr_gather *g);

/* Makes `stream` wait until the own shard of the latest gather, which is not in place or moves there, has been
 * copied. */
enum slr_status slr_ring_wait_own(struct slr_ring *ring, CUstream stream);

/* Makes `stream` wait until chunk `q` of the shard that arrives at step `step` (1 .. nranks - 1)
 * has been copied, at least. Notes in ring->early whether that was worth a chunk. */
enum slr_status slr_ring_wait_chunk(struct slr_ring *ring, CUstream stream, uint32_t q, int step);

/* True when nothing of this rank is in flight; also before slr_ring_open. */
bool slr_ring_idle(struct slr_ring *ring);

/* True when this device has copied everything that it was asked to; host memory only, no CUDA call.
 */
bool slr_ring_complete(const struct slr_ring *ring);

/* True when this device has completed piece `piece` and all before it, in both directions. Host
 * memory only. */
bool slr_ring_reached(const struct slr_ring *ring, uint32_t piece);

/* True when this rank waits for nothing that `peer` has still to do. Host memory only. */
bool slr_ring_peer_served(const struct slr_ring *ring, int peer);

/* True when this device waits for a peer: it has come to a piece, having said something of it to somebody, that the
 * peer has not given. False while work that stands before the gather holds it up. A word that a failed peer's host
 * has raised (slr_ring_release) says nothing. Host memory only. */
bool slr_ring_waits(const struct slr_ring *ring);

/* True when this device has copied everything that it was asked to out of the peer's slots. Host
 * memory only. */
bool slr_ring_has_read(const struct slr_ring *ring, int peer);

/* Ends every wait of this rank's streams for `peer`. To be repeated until idle: a late write of the
 * peer's device may lower a word again. */
void slr_ring_release(struct slr_ring *ring, int peer);

/* Only the waits of the sending part: this rank writes into nobody's memory any more when that is
 * idle. What receives, and with it every stream that waits for the gather, stays held. */
void slr_ring_release_sends(struct slr_ring *ring, int peer);
bool slr_ring_sends_idle(struct slr_ring *ring);

#endif
