/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators ending: finalised, destroyed, aborted, revoked, or suspended; and what they answer when asked
 * for errors. */
#include <pthread.h>
#include "base/wait.h"
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/hosts/hosts.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/memory/exports.h"
#include "plugin/memory/registration.h"
#include "plugin/passed/turn.h"
#include "plugin/comm/making.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/product.h"
#include "plugin/tuner/tuner.h"
#include "plugin/util/process.h"

/* Abort must end, within two seconds, whatever the peers, the streams and the other threads do.
 * Peers that do not even notice the failure (stopped, swapped out) are given some of that. The
 * caller may hold the key to what else it waits for: a stream that hangs in another communicator,
 * which is aborted next. */
#define ABORT_PEERS_MS 600
/* Together with peers that may still write: they notice within a few ticks, so one that does not is
 * stopped. NCCL's own abort comes behind it, and has taken half a second, and once nearly one. */
#define ABORT_MS 1000
#define ABORT_USERS_MS 50
#define ABORT_ORPHANS_MS 300 /* for its memory to be given back before the call returns, where that can be */
#define WRITERS_MS 2000
#define DESTROY_USERS_MS 10000 /* calls do not block, but the returning thread may be closing a mapping */

/* The communicator, with a use; NULL: not tracked. */
static struct slr_comm *known(ncclComm_t comm)
{
    return comm && !slr_process_off() ? slr_comm_find(comm) : NULL;
}

/* The same before the program ends it: it need not have been made yet. */
static struct slr_comm *ends(ncclComm_t comm)
{
    if (comm && !slr_process_off())
        slr_making_end(comm);
    return known(comm);
}

/* Joins its pending gather: what the application enqueues from here on must come after it. */
static void join_own(struct slr_comm *c, const char *who)
{
    slr_lane_lock(c->lane);
    slr_pending_join(c->lane, SLR_R_JOIN_DESTROY, who);
    slr_lane_unlock(c->lane);
}

/* The lock, within so many milliseconds. Meanwhile the watchdog's work is done here; `release`: and
 * all waits of its streams are ended, whatever the peers do. */
static bool lock_within(struct slr_comm *c, unsigned ms, bool release)
{
    uint64_t end = slr_now_ms() + ms;
    while (!slr_lane_trylock(c->lane)) {
        if (slr_now_ms() >= end)
            return false;
        if (release)
            slr_comm_release(c);
        else
            slr_watchdog_look(c);
        slr_sleep_ms(1);
    }
    return true;
}

/* False: another thread is in a call on the communicator and does not come back, because it waits
 * in the driver for room in a stream's queue, or for the context. What those wait for is released
 * meanwhile. */
static bool join_for_abort(struct slr_comm *c)
{
    if (!lock_within(c, ABORT_PEERS_MS, false) && !lock_within(c, ABORT_PEERS_MS / 2, true))
        return false;
    slr_pending_join(c->lane, SLR_R_JOIN_DESTROY, "ncclCommAbort");
    slr_lane_unlock(c->lane);
    return true;
}

/* False: its streams do not become idle. */
static bool drain_for_abort(struct slr_comm *c)
{
    uint64_t end = slr_now_ms() + ABORT_PEERS_MS;
    bool joined = join_for_abort(c);
    uint64_t now = slr_now_ms();
    return joined && slr_comm_drain(c, now < end ? (unsigned)(end - now) : 1);
}

/* A communicator that failed while peers could write into this rank's receive buffers: their
 * released streams may still do so, until they are idle. They notice the failure within a tick; one
 * that hangs is not waited for. */
static void await_writers(struct slr_comm *c, uint64_t stop)
{
    if (c->pass != SLR_R_RING || atomic_load(&c->error) == ncclSuccess || !atomic_load(&c->written))
        return;
    for (int r = 0; r < c->nranks && slr_now_ms() < stop; r++)
        while (slr_shared_may_be_written(&c->shared, r) && slr_now_ms() < stop) {
            slr_sleep_ms(1);
            slr_watchdog_look(c);
        }
}

static void dispose(struct slr_comm *c, const char *who)
{
    slr_log(SLR_LOG_DEBUG, "communicator_end", "comm=%s crank=%d by=%s calls=%llu", c->name, c->rank, who,
            (unsigned long long)c->substituted);
    slr_comm_dispose(c);
}

/* Nobody finds it from here on: neither by its handle, nor through what a GEMM has left for it. */
static void leave(struct slr_comm *c)
{
    slr_comm_remove(c);
    slr_product_end(c);
    slr_front_leave(c);
}

/* Its streams are idle. Ends the caller's use as well. */
static void end_destroyed(struct slr_comm *c)
{
    slr_registered_end(c, UINT64_MAX); /* while the communicator is on the list: house-keeping closes the exports */
    await_writers(c, slr_now_ms() + WRITERS_MS);
    leave(c);
    if (slr_comm_last_user(c, DESTROY_USERS_MS)) {
        dispose(c, "ncclCommDestroy");
        return;
    }
    slr_log(SLR_LOG_WARN, "communicator_in_use", "comm=%s crank=%d by=ncclCommDestroy msg=%s", c->name, c->rank,
            "a call or an open group still uses it; its memory is not given back");
}

/* `drained`: its streams are idle. It is taken apart by the returning thread: closing an import
 * waits for all work of the context, and NCCL's kernel of this communicator, or of one that is
 * aborted next, may be a part of that. Ends the caller's use as well. */
static void end_aborted(struct slr_comm *c, bool drained, uint64_t end)
{
    slr_registered_end(c, end);
    await_writers(c, end);
    leave(c);
    if (c->pass != SLR_R_RING && slr_comm_last_user(c, ABORT_USERS_MS)) {
        dispose(c, "ncclCommAbort");
        return;
    }
    slr_comm_orphan(c, drained);
    slr_comm_put(c);
}

static void end_rail(struct slr_hosts *h, bool abort)
{
    if (h->rail && abort)
        slr_real.ncclCommAbort(h->rail);
    else if (h->stream)
        slr_real.cuStreamSynchronize(h->stream);
    if (h->rail && !abort)
        slr_real.ncclCommDestroy(h->rail);
    h->rail = NULL;
}

/* What arrives by the rail is about to come to an end without having come. Said to the readers before: behind that they take
 * nothing of it for right. */
static void cut_off(struct slr_comm *inside)
{
    struct slr_ring *ring = &inside->lane->ring;
    /* Of sums the rail's part is the last. */
    const bool idle = slr_real.cuStreamQuery(inside->hosts->stream) != CUDA_ERROR_NOT_READY;
    if (inside->pass != SLR_R_RING || (idle && slr_ring_complete(ring)))
        return;
    slr_comm_fail(inside, SLR_PEER, -1, "a call over hosts was cut off");
    for (int r = 0; r < inside->nranks; r++)
        if (r != inside->rank)
            slr_ring_release_sends(ring, r);
}

static void cut_off_inside(const struct slr_hosts *h)
{
    struct slr_comm *inside = h->inside ? slr_comm_find(h->inside) : NULL;
    if (inside)
        cut_off(inside);
    slr_comm_put(inside);
}

/* What is asked of other hosts first: it comes to its end, as their devices wait for it; but for an abort, as the program's
 * other thread may wait, too. The rail next where it is cut off: what waits for it ends then. */
void slr_hosts_end(struct slr_hosts *h, bool abort)
{
    if (!abort)
        slr_shadow_finish(&h->shadow);
    const bool asked = slr_hosts_duel_end(h);
    if (slr_context_enter(h->ctx) != SLR_OK)
        return;
    if (abort) {
        cut_off_inside(h);
        end_rail(h, true);
    }
    if (h->inside)
        abort ? slr_comm_abort(h->inside) : slr_comm_destroy(h->inside);
    if (!abort)
        end_rail(h, false);
    slr_hosts_duel_close(h);
    slr_shadow_close(&h->shadow, abort || asked);
    slr_hosts_owed(h);
    slr_shared_leave();
}

/* Its record stays, and is the whole's no more. */
static void end_inside(struct slr_comm *c, bool abort)
{
    /* One that has failed has a rail that does not come to an end. */
    if (!atomic_load(&c->inside))
        return;
    const bool failed = slr_hosts_error(c) != ncclSuccess;
    if (atomic_exchange(&c->inside, NULL))
        slr_hosts_end(c->hosts, abort || failed);
}

ncclResult_t slr_comm_finalize(ncclComm_t comm)
{
    slr_guard++;
    struct slr_comm *c = ends(comm);
    ncclResult_t own = ncclSuccess;
    if (c) {
        /* A finalised communicator has no operation in flight: that holds for the ring's as
         * well. */
        atomic_store(&c->app_informed, true);
        slr_revoke_end(c);
        struct slr_comm *inside = slr_comm_inside(c);
        struct slr_comm *with_ring = inside ? inside : c;
        join_own(with_ring, "ncclCommFinalize");
        slr_comm_drain(with_ring, 0);
        own = slr_comm_answer(with_ring);
        slr_comm_put(inside);
        slr_comm_put(c);
    }
    ncclResult_t r = slr_real.ncclCommFinalize(comm);
    r = r == ncclSuccess ? own : r;
    slr_explore_drain();
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_destroy(ncclComm_t comm)
{
    slr_guard++;
    struct slr_comm *c = ends(comm);
    if (c) {
        end_inside(c, false);
        atomic_store(&c->app_informed, true);
        slr_revoke_end(c);
        join_own(c, "ncclCommDestroy");
        slr_comm_drain(c, 0);
        end_destroyed(c);
    }
    ncclResult_t r = slr_real.ncclCommDestroy(comm);
    slr_explore_drain();
    slr_guard--;
    return r;
}

/* The peers learn of it only when something was cut off: an abort of an idle communicator is how
 * some frameworks say good-bye. */
ncclResult_t slr_comm_abort(ncclComm_t comm)
{
    uint64_t end = 0;
    slr_guard++;
    struct slr_comm *c = ends(comm);
    if (c) {
        end_inside(c, true);
        /* First: only then does a look of the watchdog release the receiving part, whose end is
         * waited for. */
        atomic_store(&c->app_informed, true);
        if (slr_connect_waits(c) || (c->pass == SLR_R_RING && (!slr_ring_complete(&c->lane->ring) || slr_turns_of(c))))
            slr_comm_fail(c, SLR_PEER, -1, "ncclCommAbort while a gather was in flight");
        slr_revoke_end(c);
        end = slr_now_ms() + ABORT_MS;
        end_aborted(c, drain_for_abort(c), end);
    }
    /* NCCL's part after ours, but before the orphans: its kernels may be what they wait for. */
    ncclResult_t r = slr_real.ncclCommAbort(comm);
    if (c)
        slr_comm_await_orphans(slr_now_ms() + ABORT_ORPHANS_MS < end ? slr_now_ms() + ABORT_ORPHANS_MS : end);
    slr_guard--;
    return r;
}

static void revoke_hosts(const struct slr_hosts *h, int flags)
{
    cut_off_inside(h);
    slr_real.ncclCommRevoke(h->rail, flags); /* there is one, as the program calls it */
    slr_comm_revoke(h->inside, flags);
}

ncclResult_t slr_comm_revoke(ncclComm_t comm, int flags)
{
    slr_guard++;
    struct slr_comm *c = ends(comm);
    bool done = false;
    if (c && c->inside)
        revoke_hosts(c->hosts, flags);
    if (c && c->pass == SLR_R_RING) {
        atomic_store(&c->app_informed, true);
        done = slr_revoke_end(c);
        slr_comm_fail(c, SLR_PEER, -1, "ncclCommRevoke");
        if (join_for_abort(c))
            slr_watchdog_look(c);
    }
    slr_comm_put(c);
    ncclResult_t r = done ? ncclSuccess : slr_real.ncclCommRevoke(comm, flags);
    slr_guard--;
    return r;
}

/* What slipring holds for it goes as well: slots, and what the peers have mapped. Its calls have been made, but need not
 * be over: then the memory goes later, as it does where the program is not to be held up. */
ncclResult_t slr_comm_suspend(ncclComm_t comm, int flags)
{
    slr_guard++;
    struct slr_comm *c = known(comm), *inside = slr_comm_inside(c);
    struct slr_comm *held = inside ? inside : c; /* whose memory it is */
    if (held && held->pass == SLR_R_RING && (flags & NCCL_SUSPEND_MEM)) {
        join_own(held, "ncclCommSuspend");
        slr_connect_suspend(held, !c->nonblocking);
        slr_exports_suspend(held, !c->nonblocking);
    }
    slr_comm_put(inside);
    slr_comm_put(c);
    ncclResult_t r = slr_real.ncclCommSuspend(comm, flags);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_get_async_error(ncclComm_t comm, ncclResult_t *error)
{
    slr_guard++;
    if (error && !slr_process_off() && slr_making_now(comm)) {
        *error = ncclInProgress;
        slr_guard--;
        return ncclSuccess;
    }
    ncclResult_t r = slr_real.ncclCommGetAsyncError(comm, error);
    struct slr_comm *c = known(comm);
    if (r == ncclSuccess && c && (*error == ncclSuccess || *error == ncclInProgress)) {
        slr_comm_look_failed(c); /* not only at the next tick */
        if (*error == ncclInProgress)
            atomic_store(&c->in_progress_ms, slr_now_ms());
        const ncclResult_t own = c->inside ? slr_hosts_error(c) : (ncclResult_t)atomic_load(&c->error);
        *error = own != ncclSuccess ? own : *error;
        slr_late_told(c, *error);
    }
    slr_comm_put(c);
    slr_guard--;
    return r;
}
