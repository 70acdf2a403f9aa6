/* SPDX-License-Identifier: Apache-2.0 */
/* The folder connect/: makes and gives back what a communicator's ring costs in device memory.
 * connect.c has the protocol, connect_rank.c what one rank does on its device; abilities.h says
 * whether captured gathers and sums can be the ring's. connect_impl.h is for this folder alone.
 *
 * Connecting: what costs device memory is made when a communicator's first gather goes to the ring,
 * not before.
 *
 * The agreement (agreement.h) settles that the ranks of a new communicator would use the ring.
 * Streams, events, staging and the mappings of the peers' staging are made here: at the first
 * gather, and at the next one after they have been given back because memory was short. A
 * communicator that never gathers costs none of it. NCCL, too, connects at the first call and waits
 * there for its peers.
 *
 * One word of the control block (`link`) says what all ranks do. It holds a state, an epoch (how
 * often they have connected) and a serial number of its changes. Every change is one
 * compare-and-swap, by anybody:
 *
 *   DISCONNECTED(e)   nobody is connected
 *     -> CONNECTING(e + 1)   a rank comes to a gather
 *   CONNECTING(e)     all ranks take the steps below
 *     -> CONNECTED(e)        anybody who sees all of them CHECKED
 *     -> REFUSED             whoever can not go on, sees a dead peer, or waits in a gather and
 *                            reaches its deadline
 *   CONNECTED(e)      gathers go to the ring
 *     -> RELEASING(e)        a rank is short of memory
 *   RELEASING(e)      the ranks vote to give their staging back
 *     -> DISCONNECTED(e)     anybody who sees all votes
 *     -> CONNECTED(e)        a rank comes to a gather, or the time is over
 *   REFUSED           this gather and all later ones stay with NCCL, on all ranks, for the reason
 *                     in the word
 *
 * Each rank says in its post (`link`) how far it is. The number only grows: epoch * 8 + step:
 *
 *   MADE      has streams, flag words, staging; its handle is in its post; has tried whether its
 *             driver can change graphs (abilities.h)
 *   MAPPED    all were MADE: has taken the smallest slot, mapped every peer's staging, written its
 *             pattern
 *   TRIED     all were MAPPED: has copied every peer's pattern the way gathers will, and found it
 *             right; has pushed its own into every peer's staging when the communicator pushes
 *             (`put`)
 *   CHECKED   all were TRIED: what the peers have pushed is right as well
 *   CLOSED    this epoch is over: has closed what it had mapped, and reads and writes no peer's
 *             staging
 *
 * Staging is freed when its owner is CLOSED and so is every living peer, or LEFT. A rank that is
 * asked to connect while it still has staging uses that.
 *
 * Who works. A rank's next step is taken by any thread of its process that comes along, one at a
 * time for each rank: the application's thread that waits in a gather, and the house-keeping thread
 * at its ticks, which messages hasten (oob.h). So a rank that is first waits for no application
 * thread of a peer, and it does not matter in which order the threads and groups of a process come
 * to several communicators: each goes forward by itself. No step waits for a peer, and none is
 * taken under another lock; the wait for peers in slr_connect holds none.
 *
 * Bounds. A gather that waits ends with the word: CONNECTED or REFUSED; with the communicator's
 * failure (ncclCommAbort of another thread is one); with the death or the leaving of a peer, which
 * refuses; or at SLIPRING_AGREE_TIMEOUT, when it refuses itself and names the rank that is furthest
 * behind.
 *
 * Giving back. A rank whose application runs out of memory changes CONNECTED to RELEASING. Each
 * rank votes for it when no gather is between slr_connect and slr_connect_end and its streams are
 * idle; a vote is the word's serial number, so it counts for this proposal only. A rank that comes
 * to a gather first counts itself in, then reads the word: when that says RELEASING, it changes it
 * back. A voter reads the word first and then the count. So a rank that has voted can not have
 * begun a gather that anybody else does not know of, and no rank ever waits for a proposal: it is
 * decided by the first gather, by the votes, or by the proposer's half second. A gather that is
 * complete on one rank has been begun by all, so when all are idle all have made the same calls.
 */
#ifndef SLR_PLUGIN_CONNECT_CONNECT_H
#define SLR_PLUGIN_CONNECT_CONNECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/reason.h"

struct slr_comm;

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

/* A rank's own side. */
struct slr_link {
    pthread_mutex_t lock; /* whoever takes the next step; tried, not waited for */
    /* The epoch in which this rank was last CHECKED. Stored after all that it has mapped: a thread
     * that reads this epoch here sees the mappings. */
    _Atomic uint32_t checked;
    _Atomic uint32_t logged;  /* the last epoch that is in the log */
    _Atomic uint64_t staging; /* bytes of staging that this rank has */
    _Atomic int calls;        /* gathers between slr_connect and slr_connect_end */
    _Atomic int waiting;      /* of them, those that wait for peers */
};

/* The communicators of gathers that are about to be made: all of a group together. Returns when
 * each is connected, or its gathers stay with NCCL, or it has failed: why[i] is SLR_R_RING, the
 * reason, or SLR_R_COMM_ERROR. To be paired with slr_connect_end, whatever the result. With no lock
 * held. */
void slr_connect(struct slr_comm *const *comms, enum slr_reason *why, size_t n);
void slr_connect_end(struct slr_comm *const *comms, size_t n);

/* A thread is waiting in slr_connect. */
bool slr_connect_waits(struct slr_comm *c);

/* Background work for one communicator; the house-keeping thread's. */
void slr_connect_tick(struct slr_comm *c);

/* Memory is short: proposes to disconnect all communicators of this process that no gather needs
 * now, and waits a moment until their staging is free. Whether there was anything to give back. For
 * the thread that allocates. */
bool slr_connect_give_up(void);

/* The communicator ends, and nobody uses it any more: closes what it has mapped. */
void slr_connect_close(struct slr_comm *c);

#endif
