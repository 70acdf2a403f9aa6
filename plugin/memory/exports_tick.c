/* SPDX-License-Identifier: Apache-2.0 */
/* Exported blocks: the rounds of the house-keeping and of the returning thread for a communicator, and
 * giving up when memory is short. */
#include <time.h>
#include "base/real.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/lane.h"
#include "plugin/memory/exports_impl.h"

/* ---- memory is short ---- */

#define GIVE_UP_MS 500 /* ten ticks of the peers; the application's allocation waits for it */

/* Whether there is anything to wait for. */
static bool revoke_all(struct slr_comm *c)
{
    bool any = false;
    if (c->pass != SLR_R_RING)
        return false;
    slr_exports_lock(c);
    for (int i = 0; i < SLR_EXPORTS; i++) {
        uint32_t state = atomic_load(&slr_exports_get(c, c->rank, i)->state);
        uint64_t generation = c->exports->own[i].generation;
        if (state == SLR_EXPORTED_OPEN && slr_exports_registered(c, generation) && slr_block_lives(generation))
            continue; /* the application has it: no memory would come of it */
        if (state == SLR_EXPORTED_OPEN)
            slr_exports_revoke(c, i);
        any = any || state != SLR_EXPORTED_EMPTY;
    }
    slr_exports_unlock(c);
    if (any)
        slr_oob_wake(c);
    return any;
}

/* Whether the peers have closed everything that was revoked. */
static bool all_empty(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS && c->pass == SLR_R_RING; i++)
        if (atomic_load(&slr_exports_get(c, c->rank, i)->state) == SLR_EXPORTED_REVOKED)
            return false;
    return true;
}

bool slr_exports_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    uint64_t end = slr_now_ms() + GIVE_UP_MS;
    bool any = false, empty = false;
    for (int i = 0; i < n; i++)
        any |= revoke_all(list[i]);
    /* Meanwhile the peers close their mappings, and the returning thread empties the exports. */
    while (any && !empty && slr_now_ms() < end) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        empty = true;
        for (int i = 0; i < n; i++)
            empty = empty && all_empty(list[i]);
    }
    for (int i = 0; i < n; i++)
        slr_comm_put(list[i]);
    return any;
}

/* ---- each tick ---- */

static pthread_mutex_t return_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t return_wanted = PTHREAD_COND_INITIALIZER;
static bool wanted; /* under the lock */

static void wake_return(void)
{
    pthread_mutex_lock(&return_lock);
    wanted = true;
    pthread_cond_signal(&return_wanted);
    pthread_mutex_unlock(&return_lock);
}

void slr_exports_return_wait(unsigned ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += (long)ms * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&return_lock);
    while (!wanted && pthread_cond_timedwait(&return_wanted, &return_lock, &end) == 0)
        ;
    wanted = false;
    pthread_mutex_unlock(&return_lock);
}

/* A failed communicator: its last calls are enqueued or never will be, so when its sending part is
 * idle it writes into nobody's memory any more, and when all of it is, it reads from nobody's. */
static void wind_up(struct slr_comm *c)
{
    slr_exports_lock(c);
    if (c->exports->naming == c->exports->enqueued && !c->exports->launching)
        c->exports->closed = true;
    bool closed = c->exports->closed;
    slr_exports_unlock(c);
    if (!closed || !slr_ring_sends_idle(&c->lane->ring))
        return;
    atomic_store(&c->shared.control->post[c->rank].drained, 1);
    if (!slr_ring_idle(&c->lane->ring))
        return;
    pthread_mutex_lock(&c->exports->mapping);
    if (!c->exports->unmapped)
        slr_exports_unmap_all(c);
    c->exports->unmapped = true;
    pthread_mutex_unlock(&c->exports->mapping);
}

/* Refused when it connected: what was exported before, for a registration, goes back. Or somebody may free it
 * unseen. */
static void take_back(struct slr_comm *c)
{
    slr_exports_lock(c);
    for (int i = 0; i < SLR_EXPORTS; i++)
        slr_exports_revoke(c, i);
    slr_exports_unlock(c);
}

static bool any_revoked(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (atomic_load(&slr_exports_get(c, c->rank, i)->state) == SLR_EXPORTED_REVOKED)
            return true;
    return false;
}

static bool map_peers(struct slr_comm *c)
{
    if (atomic_load(&c->error) != ncclSuccess)
        return true;
    if (!slr_exports_mapping_begin(c))
        return false;
    const bool left = slr_exports_tick_peers(c);
    slr_exports_mapping_end(c);
    return left;
}

void slr_exports_tick(struct slr_comm *c)
{
    bool ring = c->pass == SLR_R_RING;
    if (!c->shared.control || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (!ring || slr_reach_doubtful())
        take_back(c);
    slr_exports_tick_own(c);
    const bool left = !ring || map_peers(c);
    if (left || any_revoked(c))
        wake_return();
    slr_shared_leave();
}

void slr_exports_return(struct slr_comm *c)
{
    if (!c->shared.control || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    slr_exports_return_own(c);
    if (c->pass == SLR_R_RING && atomic_load(&c->error) == ncclSuccess)
        slr_exports_return_peers(c);
    else
        wind_up(c);
    slr_shared_leave();
}

void slr_exports_close(struct slr_comm *c)
{
    /* A mapping that stays must not be said to be closed: `stuck` keeps this rank from saying
     * LEFT. */
    c->shared.stuck |= !slr_exports_unmap_all(c);
    for (int i = 0; i < SLR_EXPORTS; i++)
        c->shared.pinned[i] = c->exports->own[i].generation;
}
