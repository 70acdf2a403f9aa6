/* SPDX-License-Identifier: Apache-2.0 */
/* The folder comm/: a communicator's record, the list of them, the control block that its ranks
 * share, and what a thread has called in a group. It only keeps these: what is done with them is in
 * the folders after it. A few functions that need those are declared here and made there, as their
 * comments say.
 *
 * A communicator as slipring sees it: the real NCCL handle, what its ranks agreed, its ring, and
 * its pending gather.
 *
 * Every communicator made through a hooked function has one, also when its gathers stay with NCCL
 * (`pass` says why). The real handle is never replaced.
 *
 * Locks: docs/locks.md. The registry's lock protects the list of communicators; a communicator's lock is that of its
 * lane (lane.h).
 */
#ifndef SLR_PLUGIN_COMM_COMM_H
#define SLR_PLUGIN_COMM_COMM_H

#include <stdbool.h>
#include <string.h>
#include "base/real.h"
#include "base/status.h"
#include "plugin/comm/key.h"
#include "plugin/comm/shared.h"

/* The parts that folders of their own keep, each known there only. */
struct slr_hosts;
struct slr_stood_in;
struct slr_link;
struct slr_expect;
struct slr_exports;
struct slr_lane;
struct slr_late;
struct slr_places;
struct slr_product;
struct slr_timeline;
struct slr_timeline_counts;
struct slr_trials;

/* Which way a call goes: trials/trials.h. */
struct slr_trial_turn {
    int site; /* -1: none, there are too many */
    int way;
    uint32_t round;
    bool trying;
    bool duel; /* over the ring each GEMM has the way that was chosen for it, not `way` */
};

/* pending/front.c */
struct slr_front {
    CUevent begun; /* NULL: not made yet */
    CUstream stream;
    bool is, never;
    struct slr_comm *next;
};

struct slr_comm {
    ncclComm_t nccl;
    struct slr_key key;
    struct slr_label id; /* public: its address in messages */
    char name[9];        /* slr_key_name(): equal on all ranks, names the communicator in logs */
    int rank, nranks;
    _Atomic enum slr_reason pass; /* SLR_R_RING: gathers go to the ring; else why not, for good (connect.h) */
    _Atomic int error;            /* ncclResult_t that ncclCommGetAsyncError reports; ncclSuccess: none */
    _Atomic bool
        app_informed; /* the application knows that its streams will complete without the data: lifecycle/watchdog.c */
    size_t least_bytes;            /* gathers of fewer, of all ranks together, stay with NCCL: trials/find.c */
    _Atomic uint64_t latest_slots; /* of the latest gather's size: connect/slots.c; 0: there was none */
    _Atomic uint64_t substituted;  /* gathers moved to the ring; equal on all ranks */
    _Atomic uint64_t passed;       /* gathers left to NCCL */
    bool put;         /* readers expect shards nowhere, so owners write: slr_transfer_put(), set by the agreement */
    bool slots_given; /* all its slots are of one size, SLIPRING_SLOT_BYTES (connect.h); set by the agreement */
    struct slr_exports *exports;           /* its blocks that peers map, and theirs */
    struct slr_expect *expect;             /* where peers' shards have been; NULL: nothing remembered yet */
    struct slr_stood_in *stood_in;         /* graphs/recorded.h; NULL: none yet */
    struct slr_trials *trials;             /* trials.h; NULL: no ways are tried */
    struct slr_places *_Atomic places;     /* where its calls' buffers lay: places.h; NULL: nothing noted */
    struct slr_timeline *_Atomic timeline; /* timeline.h; NULL: nothing measured yet */
    struct slr_timeline_counts *timeline_counts;
    _Atomic bool written;          /* peers know that they may write into this rank's receive buffers */
    _Atomic uint32_t passed_alone; /* gathers that this rank alone left to NCCL; passed_alone.h */
    unsigned splits, shrinks, grows;
    struct slr_key_offer grown;      /* of this rank's own making; its peers have it from the control block */
    bool nonblocking;                /* NCCL's calls return before they have enqueued anything */
    struct slr_late *_Atomic late;   /* what comes behind those: passed/turn.h; NULL: nothing */
    _Atomic uint64_t in_progress_ms; /* when NCCL last said so to the program; 0: never */
    struct slr_hosts *hosts;    /* hosts/hosts.h, of the whole, which owns it, and of the inside; NULL: it is neither */
    _Atomic(ncclComm_t) inside; /* of the whole: the inside; NULL: it is none, or not any more */
    int spans, host;            /* of an inside: how many hosts its whole has, and this rank's; else 1, 0 */
    _Atomic bool summing;       /* of an inside: the whole's latest reduce-scatter went over hosts */
    _Atomic bool adds;          /* likewise: there has been a sum over hosts; set behind `hosts` */
    struct slr_shared shared;
    struct slr_link *link;                          /* connecting */
    struct slr_lane *lane;                          /* in which its calls run */
    bool imported[SLR_SLOT_CLASSES][SLR_MAX_RANKS]; /* the ring's slots of rank r are an import of another process */
    struct slr_product *product;  /* what a GEMM has computed for a reduce-scatter (produce/); NULL: nothing yet */
    struct slr_product *captured; /* the same in a capture (produce/product.h) */
    bool unproductive;            /* it has no product any more: produce/product.c's lock */
    struct slr_front front;
    _Atomic uint32_t turns; /* calls that NCCL has had in its turn: passed/turn.h */
    _Atomic bool turns_off; /* they can not be followed */
    /* The watchdog's own memory: of progress; of NCCL's calls while a peer is gone; whom it has told. */
    uint32_t seen_progress;
    uint64_t looked_ms, still_ms; /* the latest look; how long there has been none */
    bool warned;
    uint32_t turns_done;
    uint64_t turns_ms, turns_waited;
    bool failed_open;    /* in error, and a gather was in flight */
    bool told_in_call;   /* by the result of a GEMM: passed/in_call.h */
    bool told_in_turn;   /* by that of NCCL's call in its turn */
    _Atomic int revoked; /* what NCCL has in flight: lifecycle/end.c */
    bool orphan;         /* aborted while something else held up its streams; disposed of when that is over */
    _Atomic int users;   /* threads inside a call on it, and groups that keep calls of it */
    struct slr_comm *next;
};

/* The communicator of a handle, or NULL. Counts a user: slr_comm_put() ends the use, and
 * ncclCommAbort from another thread waits for it before the structure goes. Waits for one whose ranks agree
 * (making.h), which a program that asks ncclCommGetAsyncError first never meets. */
struct slr_comm *slr_comm_find(ncclComm_t nccl);
struct slr_comm *slr_comm_find_id(const struct slr_label *id, int rank); /* the same, of one rank in this process */
void slr_comm_hold(struct slr_comm *c);

#define SLR_RAIL_BLOCKS 2 /* most of NCCL's kernels between hosts (hosts/hosts.h), which the network limits */

/* Ranks that a call of it has shards of: of an inside those of the whole. */
static inline int slr_comm_shards(const struct slr_comm *c)
{
    return c->nranks * c->spans;
}

/* The inside of a communicator that spans hosts, with a use; NULL: it has none, or `c` is NULL. */
static inline struct slr_comm *slr_comm_inside(const struct slr_comm *c)
{
    ncclComm_t inside = c ? atomic_load(&c->inside) : NULL;
    return inside ? slr_comm_find(inside) : NULL;
}

void slr_comm_put(struct slr_comm *c); /* NULL: nothing */

/* Waits at most `ms` until nobody but the caller uses it any more. */
bool slr_comm_last_user(struct slr_comm *c, int ms);

void slr_comm_add(struct slr_comm *c);
void slr_comm_remove(struct slr_comm *c);

/* Up to `max` communicators (more than a process ever has: SLR_MANY_COMMS), each with a use that
 * slr_comm_put ends. */
#define SLR_MANY_COMMS 1024
int slr_comm_hold_all(struct slr_comm **list, int max);

/* Calls `visit` for each communicator under the registry's lock. */
void slr_comm_each(void (*visit)(struct slr_comm *c, void *ctx), void *ctx);

/* The orphan that was added first, off the list; NULL: none. */
struct slr_comm *slr_comm_take_orphan(void);

/* For slr_log_first: distinguishes communicators, also of one address; 0 for none. */
static inline uint64_t slr_comm_id(const struct slr_comm *c)
{
    uint64_t id = 0;
    if (c)
        memcpy(&id, c->id.byte, sizeof id);
    return id;
}

/* The error, to be returned by a call on the communicator, which tells the application;
 * ncclSuccess: none. */
ncclResult_t slr_comm_answer(struct slr_comm *c);

/* First error wins; marks the rank FAILED so that its peers fail too, and logs. `peer`: the rank at
 * fault, -1 unknown. */
void slr_comm_fail(struct slr_comm *c, enum slr_status status, int peer, const char *what);

/* Notes that gathers of this communicator stay with NCCL and says so in the log: rank and reason.
 * `peer` -1: none in particular. */
void slr_comm_passes(struct slr_comm *c, enum slr_reason why, int peer);

/* Fails the communicator when the peer has failed; false: it has not. From host memory only. */
bool slr_comm_peer_failed(struct slr_comm *c, int peer);

/* The same for all peers: for the data path. A rank that fails says so before its waits are
 * released, so a gather that was enqueued while no peer had failed is either whole or in error. */
void slr_comm_look_failed(struct slr_comm *c);

/* Made in lifecycle/dispose.c. Waits until nothing of this communicator is in flight. Ends also
 * when peers die or fail (the watchdog's work is done here meanwhile); after `ms` (0: no limit) the
 * waits are released whatever the peers do. Returns false, a little later, when even that does not
 * help: what stands before the gathers on the application's streams does not end. */
bool slr_comm_drain(struct slr_comm *c, unsigned ms);

/* Ends all waits of its streams, whatever the peers do. */
void slr_comm_release(struct slr_comm *c);

/* Made in connect/connect.c. True when nothing of this communicator is in flight. */
bool slr_comm_idle(struct slr_comm *c);

/* Made in lifecycle/dispose.c. For a communicator that is aborted, after slr_comm_remove: forgets
 * the NCCL handle and leaves the rest to slr_comm_reap_orphans, which the returning thread
 * calls. It may not be drained, another thread may still be in it, and its imports can not be
 * closed while the context has work. */
void slr_comm_orphan(struct slr_comm *c, bool drained);
void slr_comm_reap_orphans(void);

/* Waits until all orphans are disposed of, at most until `end` (slr_now_ms). */
void slr_comm_await_orphans(uint64_t end);

/* Made in lifecycle/dispose.c. Frees everything that is the communicator's own (streams, imports,
 * the structure) and hands `shared` to memory/deferred_free.c. */
void slr_comm_dispose(struct slr_comm *c);

/* The key of what the communicator's `number`-th ncclCommGrow makes: by the rank that has made the id, for the others.
 * False: none has, or not yet. */
void slr_comm_offer_key(struct slr_comm *c, const struct slr_key *key, uint64_t number);
bool slr_comm_offered_key(const struct slr_comm *c, uint64_t number, struct slr_key *key);

#endif
