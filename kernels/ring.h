/* SPDX-License-Identifier: Apache-2.0 */
/* The copy-engine ring: one all-gather among the ranks of one host.
 *
 * Data path (design rules R3, R4). At step j rank r pulls from rank (r + j) mod N. Each rank copies
 * its shard, piece by piece, into one of two staging slots that all peers have mapped, and its
 * peers copy from there into their own receive buffer:
 *
 *   publish stream, piece seq:
 *     wait done(me, r) >= seq - 2 for every r
 *     copy send -> slot seq mod 2
 *     write ready(me, r) = seq for every r
 *
 *   pull stream, piece seq, step j, o = (me + j) mod N:
 *     wait ready(o, me) >= seq; at the first step of a gather, for every o
 *     copy slot of o -> recv
 *     wait broken(o, me) = 0; write done(o, me) = seq
 *     record the chunk's event
 *
 * That is the way for any memory. A shard that lies in a block which the peer has mapped is taken
 * from there instead (SLR_FROM_PLACE), and one whose receiver's buffer this rank has mapped is
 * written there (SLR_BY_PUSH), after the receiver's device has said that its buffer is free (open).
 * The words are written and waited for alike in all three ways, so that ranks may differ in them
 * from call to call.
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
 *   publish(1) publish(2) pull(1) publish(3) pull(2) ... pull(P)
 *
 * calls follow one another in the communicator's order, and each wait is for something that stands
 * earlier in that sequence: pull(s) needs the peers' publish(s), publish(s) needs the peers'
 * pull(s - 2). Hence the earliest operation of all ranks that has not run can always run, also when
 * both streams share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1).
 *
 * The two other ways add waits for open(r, me) before the first push, which r writes before
 * everything else of the same gather, and for done(me, r) of the last piece after the last pull,
 * when r reads the shard where it lies: both stand earlier in r's sequence, too.
 *
 * Stream ordering: the pulls and the staging copy start after what was on the application's stream
 * at `entry`. The own shard is copied on the application's stream itself. After
 * slr_ring_join(stream), work put on the stream sees the whole gather, and may overwrite `send`.
 *
 * Failure: what a rank has published stays as it is until its readers have said `done`. A rank that
 * has failed breaks that when its waits are released, so it says so first, in `broken`. Its readers
 * look at that word behind each copy, before anything may rely on what was copied: a copy that
 * ended before the word was set is right, and one that ended later holds the reader's streams. So a
 * rank that was stopped, or had other work before the gather, completes nothing wrong when its
 * peers have given up meanwhile.
 *
 * A wait for a peer that is gone is ended by the host, slr_ring_release(), which raises the words
 * that this rank's device waits for. What is copied after that is not the gather's result; the
 * communicator is in error before the words are raised, and those that hold the application's
 * streams are raised only when the application has been told (plugin/lifecycle/watchdog.h).
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

struct slr_ring {
    int rank, nranks;
    CUcontext ctx;                    /* of this rank's device; streams and events belong to it */
    void *flags;                      /* host address of the flag words (flags.h) */
    CUdeviceptr dflags;               /* the same words as this device sees them */
    size_t slot;                      /* bytes of one slot, equal on all ranks */
    CUdeviceptr slots[SLR_MAX_RANKS]; /* base of each rank's slots as this device sees them */
    /* More own slots: what is staged goes there as well (cache/staging.h). 0: none. */
    CUdeviceptr twin;
    _Atomic uint32_t issued; /* pieces enqueued so far; read by the house-keeping thread */
    _Atomic bool opened;     /* it has its streams and events */
    CUstream publish, pull;
    CUstream carrier; /* here the application's events are recorded that complete with the gather */
    CUevent entry, published, finished;
    /* What stands on the application's stream without the gather: slr_ring_carry. */
    CUevent before;
    bool carrying;        /* that has been called for the latest gather */
    CUevent *chunk_event; /* of the latest gather, [chunk * (nranks - 1) + step - 1] */
    uint32_t chunk_events;
    struct slr_timing *timing; /* of the latest gather, the caller's; NULL: it is not measured */
};

/* How one peer's shard reaches this rank, and this rank's shard that peer. plugin/gather/transfer.h
 * agrees on it, call by call; both ranks of a pair have the matching half. */
enum slr_source {
    SLR_FROM_SLOT,  /* copied out of the owner's staging slot */
    SLR_FROM_PLACE, /* copied from where the owner's application has it: `from` */
    SLR_ARRIVES     /* the owner copies it into this rank's receive buffer */
};
enum slr_delivery {
    SLR_BY_SLOT,   /* this rank copies it to its slot */
    SLR_ZERO_COPY, /* the reader takes it from `send`, which is not free before it has */
    SLR_BY_PUSH    /* this rank copies it to `to`, its place in the reader's receive buffer */
};
struct slr_route {
    enum slr_source source;
    enum slr_delivery delivery;
    CUdeviceptr from, to; /* first byte of a shard, as this device sees it */
};

/* One gather. Addresses are the application's; sizes in bytes. */
struct slr_gather {
    CUdeviceptr send, recv;
    CUstream stream; /* the application's */
    struct slr_plan plan;
    const struct slr_route *route; /* [nranks], read until slr_ring_finish; NULL: all by slots */
};

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
 * (for a group of calls on several streams) several times, before slr_ring_begin. */
enum slr_status slr_ring_entry(struct slr_ring *ring, CUstream stream);

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

/* Makes `stream` wait for everything that the latest gather does, and for the events that carry it:
 * what is put on the stream behind them must not be seen to end before them. */
enum slr_status slr_ring_join(struct slr_ring *ring, CUstream stream);

/* The same; the time that the stream stands still for it is the gather's, in its record. */
enum slr_status slr_ring_join_measured(struct slr_ring *ring, CUstream stream);

/* For events that are recorded on `stream` behind the latest gather, which has not been joined to
 * it. What stands on `stream` now becomes `before`, and what is put on the carrier from now on
 * comes after that and after the gather. Does nothing when it has been called for this gather.
 *
 * It can not deadlock: the carrier holds, gather after gather, a wait for the application's stream
 * up to that gather and a wait for the gather. Both stand earlier in the order of enqueueing, and
 * the pull stream waits for both before it starts the next gather, so nothing that the carrier's
 * order adds is new. */
enum slr_status slr_ring_carry(struct slr_ring *ring, CUstream stream);

/* After slr_ring_carry: makes another stream wait for `before`, own shard included, but not for the
 * gather. */
enum slr_status slr_ring_wait_before(struct slr_ring *ring, CUstream stream);

/* Makes `stream` wait until chunk `q` of the shard that arrives at step `step` (1 .. nranks - 1)
 * has been copied. */
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
