/* SPDX-License-Identifier: Apache-2.0 */
/* The last of a communicator: waiting for what is in flight, and taking it apart. */
#include <stdlib.h>
#include <time.h>
#include "base/wait.h"
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/graphs/graphs.h"
#include "plugin/hosts/hosts.h"
#include "plugin/transfer/transfer.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/order.h"
#include "plugin/record/record.h"
#include "plugin/memory/exports.h"
#include "plugin/passed/turn.h"
#include "plugin/places/places.h"
#include "plugin/produce/produce.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"
#include "plugin/lifecycle/lifecycle_impl.h"

#define RELEASED_MS 400 /* released waits end within this, if anything lets them begin */

static _Atomic int orphans; /* not yet disposed of */

bool slr_comm_drain(struct slr_comm *c, unsigned ms)
{
    uint64_t end = slr_now_ms() + ms;
    /* The watchdog's look is taken here as well: a peer that dies meanwhile must end this at
     * once. */
    for (long ns = 20000; !slr_comm_idle(c); ns = ns < 1000000 ? ns * 2 : ns) {
        slr_watchdog_look(c);
        if (ms && slr_now_ms() >= end)
            slr_comm_release(c);
        if (ms && slr_now_ms() >= end + RELEASED_MS)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    }
    return true;
}

void slr_comm_orphan(struct slr_comm *c, bool drained)
{
    c->nccl = NULL;
    c->orphan = true;
    atomic_fetch_add(&orphans, 1);
    slr_comm_add(c); /* without a handle: only slr_comm_take_orphan() finds it */
    if (drained)
        slr_log(SLR_LOG_DEBUG, "communicator_end", "comm=%s crank=%d by=ncclCommAbort calls=%llu", c->name, c->rank,
                (unsigned long long)c->substituted);
    else
        slr_log(SLR_LOG_WARN, "communicator_held_up", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "its last gather has not begun: work that stands before it on the application's streams does not end");
}

/* A thread that was in a call when it was aborted may still be there, with the lock. */
static bool dispose_orphan(struct slr_comm *c)
{
    if (!slr_comm_idle(c) || !slr_lane_trylock(c->lane))
        return false;
    slr_pending_join(c->lane, SLR_R_JOIN_DESTROY, "ncclCommAbort");
    slr_lane_unlock(c->lane);
    if (atomic_load(&c->users) > 0)
        return false;
    slr_comm_dispose(c);
    atomic_fetch_sub(&orphans, 1);
    return true;
}

void slr_comm_await_orphans(uint64_t end)
{
    while (atomic_load(&orphans) > 0 && slr_now_ms() < end)
        slr_sleep_ms(1);
}

/* Disposing of one closes imports, which waits for all work of the context, and that may wait for
 * another one's words. So the others stay on the list meanwhile, where the watchdog releases
 * them. */
void slr_comm_reap_orphans(void)
{
    for (int n = atomic_load(&orphans); n > 0; n--) {
        struct slr_comm *c = slr_comm_take_orphan();
        if (c && !dispose_orphan(c))
            slr_comm_add(c); /* again at the next tick */
    }
}

void slr_comm_dispose(struct slr_comm *c)
{
    slr_connect_tell_held(c);
    slr_places_dispose(c);
    slr_late_drop(c);
    slr_timeline_dispose(c); /* before the context goes: it holds events of it */
    if (c->shared.ctx && slr_shared_enter(&c->shared) == SLR_OK) {
        slr_ring_close(&c->lane->ring);
        slr_order_close(c->lane);
        slr_record_close(c);
        slr_produce_close(c, false);
        slr_front_close(c, false);
        slr_trials_close(c, false);
        slr_connect_close(c);
        if (c->shared.control)
            slr_exports_close(c);
        slr_stand_ins_close(c, true);
        slr_shared_leave();
    } else if (c->shared.control && slr_shared_gone(&c->shared)) {
        slr_exports_close(c); /* its imports are forgotten, none is closed by address */
    }
    /* Last: this says LEFT, after which peers take all imports of this rank for closed. */
    c->shared.issued = atomic_load(&c->lane->ring.issued);
    slr_defer_free(&c->shared);
    slr_stand_ins_close(c, false);
    slr_expect_free(c);
    slr_trials_close(c, true);
    slr_produce_close(c, true);
    slr_front_close(c, true);
    slr_hosts_put(c->hosts);
    free(c);
}
