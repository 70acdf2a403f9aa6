/* Communicators ending: finalised, destroyed, aborted, revoked; and what they answer when asked for errors. */
#include <time.h>
#include "base/log.h"
#include "plugin/comm_hooks.h"
#include "plugin/explore.h"
#include "plugin/pending_impl.h"
#include "plugin/process.h"
#include "plugin/registered.h"
#include "plugin/watchdog.h"

/* Abort must end: peers that do not even notice the failure (stopped, swapped out) are given this long. The caller may
 * hold the key to what else it waits for: a stream that hangs in another communicator, which is aborted next. */
#define ABORT_WAIT_MS 2000
#define WRITERS_WAIT_MS 2000

static struct slr_comm *known(ncclComm_t comm)
{
    return comm && !slr_process_off() ? slr_comm_find(comm) : NULL;
}

static void join_own(struct slr_comm *c, const char *who)
{
    slr_comm_lock(c);
    slr_pending_join(c, SLR_R_JOIN_DESTROY, who);
    slr_comm_unlock(c);
}

static bool may_still_write(const struct slr_comm *c, int peer)
{
    const struct slr_post *post = &c->shared.control->post[peer];
    return peer != c->rank && !c->shared.peer_dead[peer] && atomic_load(&post->state) != SLR_RANK_LEFT &&
           !atomic_load(&post->drained);
}

/* A communicator that failed while peers could write into this rank's receive buffers: their released streams may still
 * do so, until they are idle. They notice the failure within a tick; one that hangs is not waited for. */
static void await_writers(struct slr_comm *c, unsigned ms)
{
    if (c->pass != SLR_R_RING || atomic_load(&c->error) == ncclSuccess || !atomic_load(&c->written))
        return;
    uint64_t stop = slr_now_ms() + ms;
    for (int r = 0; r < c->nranks && slr_now_ms() < stop; r++)
        while (may_still_write(c, r) && slr_now_ms() < stop) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            slr_watchdog_look(c);
        }
}

/* Ends the caller's use as well. */
static void end(struct slr_comm *c, const char *who, unsigned drain_ms)
{
    join_own(c, who);
    bool drained = slr_comm_drain(c, drain_ms);
    slr_registered_end(c);
    await_writers(c, WRITERS_WAIT_MS);
    if (!drained) {
        slr_comm_orphan(c);
        slr_comm_put(c);
        return;
    }
    slr_comm_remove(c);
    if (!slr_comm_last_user(c)) {
        slr_log(SLR_LOG_WARN, "communicator_in_use", "comm=%s crank=%d by=%s msg=%s", c->name, c->rank, who,
                "a call or an open group still uses it; its memory is not given back");
        return;
    }
    slr_log(SLR_LOG_DEBUG, "communicator_end", "comm=%s crank=%d by=%s calls=%llu", c->name, c->rank, who,
            (unsigned long long)c->substituted);
    slr_comm_dispose(c);
}

ncclResult_t slr_comm_finalize(ncclComm_t comm)
{
    slr_guard++;
    struct slr_comm *c = known(comm);
    if (c) {
        join_own(c, "ncclCommFinalize");
        slr_comm_drain(c, 0);
        slr_comm_put(c);
    }
    ncclResult_t r = slr_real.ncclCommFinalize(comm);
    slr_explore_drain();
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_destroy(ncclComm_t comm)
{
    slr_guard++;
    struct slr_comm *c = known(comm);
    if (c)
        end(c, "ncclCommDestroy", 0);
    ncclResult_t r = slr_real.ncclCommDestroy(comm);
    slr_explore_drain();
    slr_guard--;
    return r;
}

/* The peers learn of it only when something was cut off: an abort of an idle communicator is how some frameworks say
 * good-bye. */
ncclResult_t slr_comm_abort(ncclComm_t comm)
{
    slr_guard++;
    struct slr_comm *c = known(comm);
    if (c) {
        if (!slr_comm_idle(c))
            slr_comm_fail(c, SLR_PEER, -1, "ncclCommAbort while a gather was in flight");
        end(c, "ncclCommAbort", ABORT_WAIT_MS);
    }
    ncclResult_t r = slr_real.ncclCommAbort(comm);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_revoke(ncclComm_t comm, int flags)
{
    slr_guard++;
    struct slr_comm *c = known(comm);
    if (c && c->pass == SLR_R_RING) {
        join_own(c, "ncclCommRevoke");
        slr_comm_fail(c, SLR_PEER, -1, "ncclCommRevoke");
    }
    slr_comm_put(c);
    ncclResult_t r = slr_real.ncclCommRevoke(comm, flags);
    slr_guard--;
    return r;
}

ncclResult_t slr_comm_get_async_error(ncclComm_t comm, ncclResult_t *error)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclCommGetAsyncError(comm, error);
    struct slr_comm *c = known(comm);
    if (r == ncclSuccess && c && *error == ncclSuccess) {
        slr_watchdog_look_failed(c); /* not only at the next tick */
        *error = (ncclResult_t)atomic_load(&c->error);
    }
    slr_comm_put(c);
    slr_guard--;
    return r;
}
