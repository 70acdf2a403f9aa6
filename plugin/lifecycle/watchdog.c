/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: a thread of each process that has a communicator on the ring (threads.c). It never puts work on a
 * stream, and calls nothing that may wait for the device. What does is the returning thread's. docs/protocol.md, 5,
 * says what it looks for at each tick, for every communicator, and what it does about that. */
#include "base/settings.h"
#include "plugin/comm/lane.h"
#include "plugin/lifecycle/lifecycle_impl.h"

#include <pthread.h>
#include <stdio.h>
#include "plugin/comm/comm.h"
#include "base/wait.h"
#include "base/log.h"
#include "kernels/flags.h"
#include "plugin/comm/control.h"
#include "plugin/hosts/hosts.h"
#include "plugin/passed/in_call.h"
#include "plugin/passed/turn.h"
#include "plugin/passed/passed_alone.h"

#define TURN_MS 1000  /* for a call of NCCL to end whose peer is gone */
#define REVOKE_MS 200 /* for such a call to come back that has been told */
#define LOOK_MS 250   /* between two looks no more than that counts: this process may have been stopped */
#define STOP_MS 1000  /* the same of a gather that makes no progress */

static uint32_t state_of(const struct slr_comm *c, int peer)
{
    return atomic_load(&c->shared.control->post[peer].state);
}

/* A peer that makes no promise any more: what waits for it may be released. */
static bool unreliable(const struct slr_comm *c, int peer)
{
    return c->shared.peer_dead[peer] || state_of(c, peer) >= SLR_RANK_FAILED;
}

static void check_peer(struct slr_comm *c, int peer)
{
    /* In this order: a peer says that it has left after it has served, so one that was seen to have
     * left before has served all that it ever will. */
    bool has_left = state_of(c, peer) == SLR_RANK_LEFT, served = slr_ring_peer_served(&c->lane->ring, peer);
    if (slr_comm_peer_failed(c, peer))
        return;
    slr_alone_look(c, peer);
    /* The memory of a dead process may be gone before this device has read it; one that has left keeps it. */
    if (c->shared.peer_dead[peer] && (!served || !slr_ring_has_read(&c->lane->ring, peer)))
        slr_comm_fail(c, SLR_PEER, peer, "the peer's process ended while a gather waits for it");
    else if (!served && has_left)
        slr_comm_fail(c, SLR_PEER, peer, "the peer destroyed the communicator while a gather waits for it");
}

/* A peer that has died or left; -1: none. */
static int gone(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank && (c->shared.peer_dead[r] || state_of(c, r) == SLR_RANK_LEFT))
            return r;
    return -1;
}

/* Of a call that NCCL had not put on its stream when that was last asked nothing is known unless it has just been. */
static bool still_going(const struct slr_comm *c, uint64_t now)
{
    return !atomic_load(&c->late) || now - atomic_load(&c->in_progress_ms) < LOOK_MS;
}

/* NCCL has a gather in its turn, and a peer is gone. That one may have ended its part: then this rank's is
 * about to end (turn.h). Each call that ends starts the time again. */
static void check_turns(struct slr_comm *c)
{
    uint32_t done;
    const int peer = gone(c);
    const uint64_t now = slr_now_ms(), passed = now - c->turns_ms;
    c->turns_ms = now;
    if (peer < 0 || !still_going(c, now) || !slr_turns_open(c->lane->ring.flags, c->nranks, c->rank, &done)) {
        c->turns_waited = 0;
        return;
    }
    c->turns_waited = done == c->turns_done ? c->turns_waited + (passed < LOOK_MS ? passed : LOOK_MS) : 0;
    c->turns_done = done;
    if (c->turns_waited >= TURN_MS)
        slr_comm_fail(c, SLR_PEER, peer, "the peer is gone, and a gather that was NCCL's in the trials does not end");
}

/* By how many pieces a word is behind what this rank has enqueued. */
static uint32_t lag(const struct slr_comm *c, enum slr_flag_kind kind, int owner, int reader)
{
    uint32_t have = slr_flag_piece(c->lane->ring.flags, c->nranks, kind, owner, reader);
    uint32_t issued = atomic_load(&c->lane->ring.issued);
    return slr_flag_reached(have, issued) ? 0 : issued - have;
}

/* The peer's stream has not come to the latest reduce-scatter: then everybody is held up, and further behind the peer
 * than it is itself, perhaps. */
static uint64_t absence(const struct slr_comm *c, int peer, int of)
{
    const uint32_t entered = atomic_load(&c->lane->ring.entered);
    const uint32_t have = slr_flag_piece(c->lane->ring.flags, c->nranks, SLR_FLAG_OPEN, of, peer);
    return entered && !slr_flag_reached(have, entered) ? UINT32_MAX : 0;
}

/* The rank that the gather hangs on: the one whose own words, to all ranks, are furthest behind.
 * Whoever waits for it is behind as well, but has at least said what it could. This rank itself,
 * when work that stands before the gather holds it up. */
static int slowest(const struct slr_comm *c)
{
    uint64_t most = 0;
    int who = -1;
    for (int step = 1; step <= c->nranks; step++) {
        int p = (c->rank + step) % c->nranks;
        uint64_t sum = 0;
        for (int r = 0; r < c->nranks; r++)
            if (r != p)
                sum += lag(c, SLR_FLAG_READY, p, r) + lag(c, SLR_FLAG_DONE, r, p) + absence(c, p, r);
        if (sum > most) {
            most = sum;
            who = p;
        }
    }
    return who;
}

/* Progress is any change of the number of enqueued pieces or of the words that this rank waits for. */
static uint32_t progress(const struct slr_comm *c)
{
    uint32_t sum = atomic_load(&c->lane->ring.issued);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            sum += slr_flag_piece(c->lane->ring.flags, c->nranks, SLR_FLAG_READY, r, c->rank) +
                   slr_flag_piece(c->lane->ring.flags, c->nranks, SLR_FLAG_DONE, c->rank, r) +
                   slr_flag_piece(c->lane->ring.flags, c->nranks, SLR_FLAG_DONE, r, c->rank);
    return sum;
}

/* The rank of all hosts' that a gather over hosts waits for on this one's rail; -1: not on that. */
static int awaits(const struct slr_comm *c)
{
    int rank = -1;
    if (c->hosts && slr_shared_enter(&c->shared) == SLR_OK) {
        rank = slr_rail_awaits(c->hosts);
        slr_shared_leave();
    }
    return rank;
}

/* Of sums over hosts the ring may have done its part when the rail has not. */
static bool is_complete(const struct slr_comm *c)
{
    return slr_ring_complete(&c->lane->ring) && !(atomic_load(&c->adds) && awaits(c) >= 0);
}

static void say_stalled(const struct slr_comm *c, uint64_t still)
{
    const int far = awaits(c);
    char what[120] = "a gather waits for this peer, or for work that stands before it on the application's streams";
    if (far >= 0)
        snprintf(what, sizeof what, "a call over hosts waits for what rank %d of all hosts' sends", far);
    slr_log(SLR_LOG_WARN, "stalled", "comm=%s crank=%d peer=%d call=%llu piece=%u ms=%llu msg=%s", c->name, c->rank,
            far >= 0 ? -1 : slowest(c), (unsigned long long)c->substituted, atomic_load(&c->lane->ring.issued),
            (unsigned long long)still, what);
}

/* Only while something is in flight: an idle communicator makes no progress either. A job that was frozen as a whole
 * has not stalled. */
static void check_stall(struct slr_comm *c)
{
    const uint32_t now = progress(c);
    const uint64_t t = slr_now_ms(), passed = t - c->looked_ms;
    c->looked_ms = t;
    if (now != c->seen_progress || is_complete(c)) {
        c->seen_progress = now;
        c->still_ms = 0;
        c->warned = false;
        return;
    }
    c->still_ms += passed < STOP_MS ? passed : STOP_MS;
    const uint64_t still = c->still_ms, warn = slr_get(SLR_S_STALL_WARN), limit = slr_get(SLR_S_STALL_TIMEOUT);
    if (limit && still >= limit)
        slr_comm_fail(c, SLR_TIMEOUT, awaits(c) >= 0 ? -1 : slowest(c), "no progress within SLIPRING_STALL_TIMEOUT");
    if (warn && still >= warn && !c->warned) {
        c->warned = true;
        say_stalled(c, still);
    }
}

static bool broken(const struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank && slr_flag_piece(c->lane->ring.flags, c->nranks, SLR_FLAG_BROKEN, r, c->rank))
            return true;
    return false;
}

/* The communicator has failed. Whether its gathers are what holds streams of this rank: the device waits for a
 * peer's piece, or, with all pieces there, because they may have been broken. A failed peer says that of every
 * piece, so it counts only if a gather was in flight at the failure. */
static bool holds(struct slr_comm *c)
{
    if (slr_ring_complete(&c->lane->ring))
        return c->failed_open && broken(c);
    c->failed_open = true;
    return slr_ring_waits(&c->lane->ring);
}

/* The communicator has failed, and its error is set. A thread that hangs in a GEMM is told by its result
 * (in_call.h). When that does not free it, the peer is stopped: what waits is released as by ncclCommAbort,
 * whatever the peers do. */
static void look_in_call(struct slr_comm *c)
{
    const bool held = holds(c), informed = atomic_load(&c->app_informed);
    if (!c->told_in_call && (informed || !held))
        return;
    const enum slr_in_call in =
        slr_in_call_tell(c->shared.ctx, slr_now_ms(), c->told_in_call ? 0 : slr_get(SLR_S_GEMM_TIMEOUT));
    if (in != SLR_IN_CALL_NONE && !c->told_in_call) {
        c->told_in_call = true;
        atomic_store(&c->app_informed, true);
        slr_log(SLR_LOG_ERROR, "gemm_told", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "the communicator has failed, and a GEMM hangs: it returns CUBLAS_STATUS_EXECUTION_FAILED, and what "
                "waits for the gather goes on without the data");
    }
    if (in == SLR_IN_CALL_HELD)
        slr_comm_release(c);
}

/* The communicator has failed, and its error is set. A thread that is in a call of it that NCCL has is told by that.
 * The call may wait for the context, which goes on then, or for the peer: then NCCL has to let go of it. */
static void look_in_turn(struct slr_comm *c)
{
    uint64_t since;
    if (atomic_load(&c->app_informed) && !c->told_in_turn)
        return;
    if (!slr_in_call_tell_own(c, slr_now_ms(), &since))
        return;
    if (!c->told_in_turn) {
        c->told_in_turn = true;
        atomic_store(&c->app_informed, true);
        slr_log(SLR_LOG_ERROR, "nccl_told", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "the communicator has failed while NCCL has one of its calls: that returns the error, and what waits "
                "for the gather goes on without the data");
    }
    if (since >= REVOKE_MS)
        slr_revoke_begin(c);
    if (since >= SLR_IN_CALL_HELD_MS)
        slr_comm_release(c);
}

static void look_locked(struct slr_comm *c)
{
    slr_shared_watch_peers(&c->shared);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            check_peer(c, r);
    check_turns(c);
    check_stall(c);
    if (atomic_load(&c->error) == ncclSuccess)
        return;
    look_in_turn(c);
    look_in_call(c);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank && unreliable(c, r))
            (atomic_load(&c->app_informed) ? slr_ring_release : slr_ring_release_sends)(&c->lane->ring, r);
}

void slr_watchdog_look(struct slr_comm *c)
{
    /* For seen_progress and its like: threads that drain a communicator look as well. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (c->pass != SLR_R_RING)
        return;
    pthread_mutex_lock(&lock);
    look_locked(c);
    pthread_mutex_unlock(&lock);
}

/* ---- revoking ----
 *
 * NCCL's operations of a communicator that has failed are ended, so that a call of NCCL in its turn comes back
 * (docs/protocol.md, 5, NCCL's turn). A thread of its own calls ncclCommRevoke, as it waits for NCCL's streams. What
 * ends the communicator for the program comes behind it, or, if it has begun, keeps it from beginning. */

#define WAIT_MS 1000

enum { NONE, UNDER_WAY, DONE, CLOSED }; /* CLOSED: the program ends it itself */

static void *revoke_now(void *arg)
{
    struct slr_comm *c = arg;
    slr_guard++; /* whatever this thread calls is slipring's own */
    slr_real.ncclCommRevoke(c->nccl, 0);
    atomic_store(&c->revoked, DONE);
    slr_comm_put(c);
    return NULL;
}

void slr_revoke_begin(struct slr_comm *c)
{
    int none = NONE;
    pthread_t thread;
    if (!slr_real.ncclCommRevoke || !atomic_compare_exchange_strong(&c->revoked, &none, UNDER_WAY))
        return;
    slr_comm_hold(c);
    if (slr_thread_start(&thread, "slipring-revoke", revoke_now, c) == 0) {
        pthread_detach(thread);
        return;
    }
    atomic_store(&c->revoked, CLOSED);
    slr_comm_put(c);
}

bool slr_revoke_end(struct slr_comm *c)
{
    const uint64_t end = slr_now_ms() + WAIT_MS;
    int state = NONE;
    if (atomic_compare_exchange_strong(&c->revoked, &state, CLOSED))
        return false;
    while (atomic_load(&c->revoked) == UNDER_WAY && slr_now_ms() < end)
        slr_sleep_ms(1);
    return atomic_load(&c->revoked) == DONE;
}
