/* SPDX-License-Identifier: Apache-2.0 */
/* The folder memory/: device memory that ranks share beside staging. Exported blocks (this file),
 * buffers that the application registers (registration.h), and what is freed only when the peers
 * have closed it (at the end). exports_impl.h is for this folder alone.
 *
 * Exported blocks: blocks of device memory (cache/blocks.h) that a rank lets its peers map, so that
 * shards in them need no staging. docs/protocol.md, 3, Zero copy: exported blocks, has the states of an
 * export and of a peer's acknowledgement, which blocks get a place, and what happens in each bad case.
 * Only a block that a peer has acknowledged is named to that peer in a transfer descriptor
 * (transfer.h). No gather waits for any of this; until then shards are staged.
 *
 * Who works. The house-keeping thread exports, and maps what peers export; that waits for no work of the device, as
 * launches of graphs wait for it (record/replay.c). What may wait, closing mappings and unpinning blocks, is the
 * returning thread's. An entry of `mapped` is the first one's while it is empty, and the second one's when it is not.
 *
 * Who writes: the export its owner; the ack its peer. The block is unpinned before the export is EMPTY again, and only
 * then may it go back to the driver. A mapping is shared between the communicators of a process (cache/handles.h): it
 * is closed before the last of them takes its acknowledgement back.
 *
 * When a communicator has failed: docs/protocol.md, 5. */
#ifndef SLR_PLUGIN_MEMORY_EXPORTS_H
#define SLR_PLUGIN_MEMORY_EXPORTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "cache/handles.h"
#include "kernels/ring.h"
#include "plugin/comm/shared.h"

struct slr_comm;
struct slr_place;

/* When a block was used: the last call, and how many calls usually lie between two (0: used in one call only). */
struct slr_exported_use {
    uint64_t last, gap;
};

#define SLR_EXPORTS_SEEN 48
#define SLR_EXPORTS_HINTS 64
#define SLR_EXPORTS_UNKNOWN 32
#define SLR_EXPORTS_LOST 32
#define SLR_EXPORTS_PAST 32

/* What a rank knows of its own exports and of what it has mapped. Its lock is held for moments
 * only, never while the driver is called: the data path takes it, and so does the house-keeping
 * thread, which must never wait for a thread that waits for a peer. */
struct slr_exports {
    pthread_mutex_t lock;
    pthread_mutex_t mapping; /* held while anything is mapped, and, in a failed communicator, all closed */
    uint64_t naming;         /* number of the call that names blocks now, or named them last */
    uint64_t enqueued;  /* number of the last call that is enqueued: what its descriptors named has been looked up */
    bool wake;          /* the call has met a block that is worth exporting now */
    unsigned launching; /* launches of graphs that slr_exports_launching has been told of */
    bool closed;        /* the communicator has failed: nothing is named or looked up */
    bool unmapped;      /* and nothing of the peers is mapped; under `mapping` */
    struct slr_exported_own {
        uint64_t generation;
        struct slr_exported_use use;
        uint64_t revoked_ms;
    } own[SLR_EXPORTS];
    struct slr_exported_mapped {
        uint64_t generation;
        CUdeviceptr base;
        enum slr_memory kind;
        uint32_t until; /* piece that has to be complete before it may be closed; set when its last call is enqueued */
        bool closing;
        uint8_t tries;     /* to close it, in vain */
        uint64_t asked_ms; /* when its descriptors were asked for */
    } mapped[SLR_MAX_RANKS][SLR_EXPORTS];
    struct slr_exported_seen { /* blocks that gathers have used and that are not exported; 0: none */
        uint64_t generation;
        struct slr_exported_use use;
        bool refused; /* it can not be exported */
    } seen[SLR_EXPORTS_SEEN];
    struct slr_exported_unknown { /* buffers in no block, by their address; p 0: none */
        CUdeviceptr p;
        size_t bytes;
        bool wanted; /* not looked at yet, since it was met */
        uint64_t looked_ms;
    } unknown[SLR_EXPORTS_UNKNOWN];
    struct slr_exported_past {           /* the latest blocks of each peer that were mapped; generation 0: none */
        uint64_t generation, base, size; /* base: in the peer */
    } past[SLR_MAX_RANKS][SLR_EXPORTS_PAST];
    unsigned next_past[SLR_MAX_RANKS];
    struct {
        CUdeviceptr p; /* 0: none */
        size_t bytes;
    } lost[SLR_EXPORTS_LOST]; /* where memory was unmapped that peers had */
    unsigned next_lost;
    struct slr_exported_registered { /* blocks that are registered with this communicator */
        uint64_t generation;
        uint32_t count;
        bool refused; /* it can not be exported */
        bool on_use;  /* not before a gather uses it: nobody awaits it, or one that gathers use has displaced it */
    } registered[SLR_EXPORTS];
    /* Where a block was found last, by its generation: a gather looks for the same few for each peer. */
    uint8_t own_at[SLR_EXPORTS_HINTS], mapped_at[SLR_MAX_RANKS][SLR_EXPORTS_HINTS];
    bool plain_only[SLR_MAX_RANKS]; /* graphs have no copies for virtual memory of that peer: slr_exported_virtual */
};

/* Around the three functions that follow, as many as come in one go: their lock. `begin` in the stead
 * of `hold` for the first ones of a call, whose descriptors name blocks from then on; `end` without
 * the lock, when what they named has been enqueued. */
void slr_exports_begin(struct slr_comm *c, uint64_t call);
void slr_exports_hold(struct slr_comm *c);
void slr_exports_release(struct slr_comm *c);
void slr_exports_end(struct slr_comm *c, uint64_t call);

/* Around the launch of a graph whose nodes name what is mapped: so long it stays mapped, also when the
 * communicator fails. Under its lock. */
void slr_exports_launching(struct slr_comm *c, bool launching);

/* The place `skip` bytes behind `at` in the form that `peer` is given, or none: then the block is
 * noted, to be exported. */
struct slr_remote_place slr_exported_place(struct slr_comm *c, const struct slr_place *at, size_t skip, size_t bytes,
                                           int peer, uint64_t call);

/* Whether `peer` copies what slr_exported_place() has given by a kernel. */
bool slr_exported_near(struct slr_comm *c, int peer, struct slr_remote_place place);

/* The address on this rank's device of a place that `peer` has named, and its kind; 0: this communicator has failed. */
CUdeviceptr slr_exported_mapped(struct slr_comm *c, int peer, struct slr_remote_place place, enum slr_memory *kind);

/* The same of a place that the peer has not named for this call, but once was its; 0: it can not be read. The mapping
 * then stays until this rank has completed every piece of its ring (slr_ring_begin has counted those of this call),
 * whatever the owner does with the memory meanwhile. */
CUdeviceptr slr_exported_readable(struct slr_comm *c, int peer, struct slr_remote_place place, size_t bytes,
                                  enum slr_memory *kind);

/* A peer's block has ended that lay where a later one lies now, all of it: memory that was mapped anew, or became part
 * of a larger block. *shift: how much further into that one its bytes lie. 0: there is none. Under the lock. */
uint64_t slr_exported_heir(struct slr_comm *c, int peer, uint64_t generation, uint64_t *shift);

/* For nodes of graphs, whose kind of memory can not change (kernels/ring_record.h): some virtual memory of
 * the peer that this rank has mapped. False: none, and none will be. */
bool slr_exported_virtual(struct slr_comm *c, int peer, uint64_t *generation, struct slr_export *export);

/* A gather's buffer that is in no block: house-keeping looks whether it can be entered (cache/blocks.h). */
void slr_exports_unknown(struct slr_comm *c, CUdeviceptr p, size_t bytes);

/* Registered blocks are exported as soon as possible if they are `awaited`, else when a gather uses them; and displaced
 * only when they are not used and others are. Counted: a block may be registered several times. False: there are too
 * many. Unregister: after the last time the export is revoked (`revoke`), or stays as any
 * other. */
bool slr_exports_register(struct slr_comm *c, uint64_t generation, bool awaited);
void slr_exports_unregister(struct slr_comm *c, uint64_t generation, bool revoke);

/* All peers that will ever map the registered block have done so. */
bool slr_exports_acknowledged(struct slr_comm *c, uint64_t generation);

/* No peer has the block mapped any more, or it has been registered again. */
bool slr_exports_gone(struct slr_comm *c, uint64_t generation);

/* A block that is worth exporting before a gather uses it. */
void slr_exports_suggest(struct slr_comm *c, uint64_t generation);

/* Background work for one communicator, and what follows from an ASK and from a GIVE (oob.h). For
 * the house-keeping thread alone; `return`: for the returning thread, which is woken when there is any
 * of it and waits for that, or `ms`. */
void slr_exports_tick(struct slr_comm *c);
void slr_exports_return(struct slr_comm *c);
void slr_exports_return_wait(unsigned ms);
void slr_exports_asked(struct slr_comm *c, int reader, int index, uint64_t generation);
void slr_exports_given(struct slr_comm *c, int owner, int index, uint64_t generation, const struct slr_pieces *pieces);

/* Memory is short: revokes everything that this process exports, but for registered blocks that the application has
 * not unmapped, and waits a moment for the peers to close it. Blocks in use are exported again when the next gather
 * uses them. Whether there was anything to revoke. For slr_block_on_shortage. */
bool slr_exports_give_up(void);

/* The same of one communicator that the program suspends; without `waits` the peers close it later. */
void slr_exports_suspend(struct slr_comm *c, bool waits);

/* The communicator ends: closes all that is mapped. What is exported stays pinned until the peers
 * have left (slr_defer_free). */
void slr_exports_close(struct slr_comm *c);

/* ---- the end of a communicator's shared part: staging memory and control block ----
 *
 * The owner's block may be freed only when every peer has closed its import (state LEFT) or is
 * dead, so it is kept here until then; the returning thread (lifecycle/threads.c) looks again
 * at each tick. Neither ncclCommDestroy nor the application ever waits for it. */

/* Takes over *s (which may be empty). The caller has closed its own imports; this posts LEFT,
 * unless one of them could not be closed (`stuck`). */
void slr_defer_free(const struct slr_shared *s);

/* Frees what no peer uses any more. Called by the returning thread, and by a rank that needs
 * room. Returns how many are left, those that another thread is freeing among them. */
unsigned slr_deferred_free_tick(void);

/* Before staging is made: while `bytes` more do not fit the budget and communicators that have
 * ended still hold memory, waits for their peers and for the thread that frees it, at most `ms`. */
void slr_deferred_for_room(uint64_t bytes, uint64_t budget, unsigned ms);

/* At the end of the process: waits, at most `ms`, until no living peer reads from this process's
 * staging memory any more. */
void slr_deferred_before_exit(unsigned ms);

#endif
