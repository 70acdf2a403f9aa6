/* SPDX-License-Identifier: Apache-2.0 */
/* The folder connect/: makes and gives back what a communicator's ring costs in device memory.
 * connect.c has the protocol, connect_rank.c what one rank does on its device, abilities.c what its
 * device can, slots.c which slots calls go through, and what is held. connect_impl.h is for this folder alone.
 *
 * What costs device memory is made when a communicator's first gather goes to the ring, not before:
 * streams, events, staging and the mappings of the peers' staging; and at the next one after they have
 * been given back because memory was short. NCCL, too, connects at the first call and waits there for
 * its peers. docs/protocol.md, 2, has why nothing deadlocks, giving back, and each bad case.
 *
 * Slots. A communicator has slots of several sizes, or classes (SLR_SLOT_CLASSES); each is connected, given
 * back and refused by itself, at the first call whose size needs it. What follows is of one class.
 *
 * One word of the control block (`link`) says what all ranks do. It holds a state, an epoch (how
 * often they have connected) and a serial number of its changes. Every change is one
 * compare-and-swap, by anybody:
 *
 *   DISCONNECTED(e) -> CONNECTING(e + 1)   a rank comes to a gather
 *   CONNECTING(e) -> CONNECTED(e)          anybody who sees all ranks CHECKED
 *                 -> REFUSED               whoever can not go on, sees a dead peer, or waits in a
 *                                          gather and reaches its deadline; for good. Calls that
 *                                          need these slots are NCCL's; all are when there have been
 *                                          no others
 *   CONNECTED(e) -> RELEASING(e)           a rank is short of memory
 *   RELEASING(e) -> DISCONNECTED(e)        anybody who sees all votes to give staging back
 *                -> CONNECTED(e)           a rank comes to a gather, or the time is over
 *
 * Each rank says in its post (`linked`) how far it is. The number only grows: epoch * 8 + step:
 *
 *   MADE      has streams, flag words, staging; its handle is in its post; has tried whether its
 *             driver can change graphs
 *   MAPPED    all were MADE: has taken the smallest slot, mapped every peer's staging, written its
 *             pattern
 *   TRIED     all were MAPPED: has copied every peer's pattern the way gathers will, and found it
 *             right; has pushed its own into every peer's staging
 *   CHECKED   all were TRIED: what the peers have pushed is right as well
 *   CLOSED    this epoch is over: has closed what it had mapped, and reads and writes no peer's
 *             staging
 *
 * Staging is freed when its owner is CLOSED and so is every living peer, or LEFT. A rank that is
 * asked to connect while it still has staging uses that. A rank's next step is taken by any thread of
 * its process that comes along, one at a time, under no other lock; none waits for a peer.
 *
 * A gather that waits ends with the word, with the communicator's failure (ncclCommAbort of another
 * thread is one), or at SLIPRING_AGREE_TIMEOUT, when it refuses itself and names the rank that is
 * furthest behind. A rank that comes to a gather first counts itself in, then reads the word; a voter
 * reads the word first and then the count. */
#ifndef SLR_PLUGIN_CONNECT_CONNECT_H
#define SLR_PLUGIN_CONNECT_CONNECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/real.h"
#include "base/status.h"
#include "kernels/ring.h"

struct slr_call;
struct slr_comm;
struct slr_reduce;

enum slr_link_state {
    SLR_LINK_DISCONNECTED,
    SLR_LINK_CONNECTING,
    SLR_LINK_CONNECTED,
    SLR_LINK_RELEASING,
    SLR_LINK_REFUSED
};

enum slr_link_step {
    SLR_LINK_NONE,
    SLR_LINK_MADE,
    SLR_LINK_MAPPED,
    SLR_LINK_TRIED,
    SLR_LINK_CHECKED,
    SLR_LINK_CLOSED,
    SLR_LINK_STEPS = 8
};

/* The word: state in bits 0-3, epoch in bits 4-23, serial number in bits 24-63. Of REFUSED the
 * upper half is the refusal (control.h). Epochs that run out are not given back any more. */
#define SLR_LINK_EPOCHS (1u << 20)

static inline uint64_t slr_link_word(enum slr_link_state state, uint32_t epoch, uint64_t serial)
{
    return serial << 24 | (uint64_t)epoch << 4 | (uint64_t)state;
}

static inline enum slr_link_state slr_link_state(uint64_t word)
{
    return (enum slr_link_state)(word & 15);
}

static inline uint32_t slr_link_epoch(uint64_t word)
{
    return (uint32_t)(word >> 4) & (SLR_LINK_EPOCHS - 1);
}

static inline uint64_t slr_link_serial(uint64_t word)
{
    return word >> 24;
}

static inline uint64_t slr_link_refused(uint32_t refusal)
{
    return (uint64_t)refusal << 32 | SLR_LINK_REFUSED;
}

static inline uint32_t slr_link_refusal(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint64_t slr_link_at(uint32_t epoch, enum slr_link_step step)
{
    return (uint64_t)epoch * SLR_LINK_STEPS + step;
}

/* A rank's own side, of the slots of one class. */
struct slr_link_class {
    /* The epoch in which this rank was last CHECKED. Stored after all that it has mapped: a thread
     * that reads this epoch here sees the mappings. */
    _Atomic uint32_t checked;
    _Atomic uint32_t logged;  /* the last epoch that is in the log */
    _Atomic uint64_t staging; /* bytes of staging that this rank has */
    _Atomic bool told;        /* the log says that they were refused */
    CUstream stream;          /* on which it connects; NULL: it does not */
};

struct slr_link {
    pthread_mutex_t lock; /* whoever takes the next step; tried, not waited for */
    struct slr_link_class of[SLR_SLOT_CLASSES];
    _Atomic bool once;   /* has been CHECKED */
    _Atomic int calls;   /* gathers between slr_connect and slr_connect_end */
    _Atomic int waiting; /* of them, those that wait for peers */
};

/* A gather is about to be made that goes through slots of class `k`. Returns when these are connected, or it stays
 * with NCCL, or the communicator has failed: SLR_R_RING, the reason, or SLR_R_COMM_ERROR. To be paired with
 * slr_connect_end, whatever the result. With no lock held. */
enum slr_reason slr_connect(struct slr_comm *c, unsigned k);
void slr_connect_end(struct slr_comm *const *comms, size_t n);

/* A thread is waiting in slr_connect. */
bool slr_connect_waits(struct slr_comm *c);

/* Background work for one communicator; the house-keeping thread's. */
void slr_connect_tick(struct slr_comm *c);

/* Memory is short: proposes to disconnect all communicators of this process that no gather needs
 * now, and waits a moment until their staging is free. Whether there was anything to give back. For
 * the thread that allocates. */
bool slr_connect_give_up(void);

/* The same of one communicator that the program suspends; without `waits` it goes when all ranks have done so. It comes
 * back with the next gather. */
void slr_connect_suspend(struct slr_comm *c, bool waits);

/* The communicator ends, and nobody uses it any more: closes what it has mapped. */
void slr_connect_close(struct slr_comm *c);

/* ---- slots.c: what is held, and which slots a call goes through ---- */

uint64_t slr_connect_held(const struct slr_comm *c); /* bytes of staging that this rank has for it */

/* A line "held" at level info, when the communicator, or the process, ends and nothing has been closed yet. */
void slr_connect_tell_held(const struct slr_comm *c);

/* Some rank has set SLIPRING_SLOT_BYTES: all have one class, the largest, each of that size. When all have posted. */
bool slr_slots_any_given(const struct slr_comm *c);

/* Bytes of a slot of the class that this rank would like to have. */
size_t slr_slots_wanted(unsigned k);

/* The class that the call, or a reduce-scatter or all-reduce of such a shard, goes through. Uniform. */
unsigned slr_call_slots(const struct slr_call *call);
unsigned slr_scatter_slots(const struct slr_comm *c, size_t shard);

/* When its slots are connected. How a gather of such a shard is cut; bytes of a shard of a reduce-scatter of this size
 * that they hold (0: not yet connected). Uniform. */
struct slr_plan slr_gather_plan(const struct slr_comm *c, size_t shard);
size_t slr_scatter_room(const struct slr_comm *c, size_t shard);

/* ---- abilities.c: what all ranks' devices can ---- */

/* What this rank posts first: its settings and its driver's functions let gathers be taken into graphs. */
bool slr_graphs_may(void);

/* All ranks have posted that they can, as far as they know. */
bool slr_graphs_all_can(const struct slr_comm *c);

/* Whether captured calls of such a shard are taken into graphs: by the settings, by what the ranks have
 * posted, and by size. Equal on all ranks that are connected. */
bool slr_graphs_take(const struct slr_comm *c, size_t shard);

/* A captured gather stays with NCCL. If this process's driver has not got the functions, the log says
 * so. */
void slr_graphs_missed(void);

/* A step of connecting: the communicator's context is entered, its streams are there; `memory`: a slot of its own. */
void slr_graphs_try(struct slr_comm *c, CUdeviceptr memory);

/* The device code that adds (kernels/scatter.h), for reduce-scatters and all-reduces. */
enum { SLR_SUMS_CAN = 1, SLR_SUMS_STRICT = 2 }; /* it has the code; its sums are to be NCCL's (SLIPRING_STRICT) */

/* While the ranks agree: what this rank posts of it. */
uint32_t slr_sums_post(struct slr_comm *c);

/* All ranks have posted that they can; some rank that its all-reduces are to be NCCL's. Equal on all ranks. */
bool slr_sums_all_can(const struct slr_comm *c);
bool slr_sums_any_strict(const struct slr_comm *c);

/* The code of the communicator's device, when slr_sums_all_can(). */
const struct slr_reduce *slr_sums_of(const struct slr_comm *c);

/* The same, where ranks share a process, for copies between them; NULL: it has none. */
const struct slr_reduce *slr_copies_of(const struct slr_comm *c);

#endif
