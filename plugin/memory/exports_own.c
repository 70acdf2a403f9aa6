/* SPDX-License-Identifier: Apache-2.0 */
/* Exported blocks: the owner's side, giving up when memory is short, and the rounds of the two background threads. */
#include <time.h>
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/lane.h"
#include "plugin/memory/exports_impl.h"

/* An export that the peers have not closed for so long is stuck: others do not wait for its room. */
#define STUCK_MS 2000

/* ---- revoked exports ---- */

/* No living peer has the block mapped, or is about to map it. */
static bool let_go(const struct slr_comm *c, int i)
{
    for (int r = 0; r < c->nranks; r++) {
        bool gone = c->shared.peer_dead[r] || atomic_load(&c->shared.control->post[r].state) == SLR_RANK_LEFT;
        uint64_t ack = atomic_load(slr_exports_ack(c, c->rank, r, i));
        if (r != c->rank && !gone && ack != 0 && !(ack & SLR_ACK_REFUSED))
            return false;
    }
    return true;
}

/* A revoked export that all peers have closed becomes empty. The state comes last: whoever waits
 * for memory looks at it, and then expects the block to be unpinned. Unpinning may free it. */
static void collect(struct slr_comm *c, int i)
{
    struct slr_exported *e = slr_exports_get(c, c->rank, i);
    if (atomic_load(&e->state) != SLR_EXPORTED_REVOKED || !let_go(c, i))
        return;
    slr_exports_hold(c);
    const uint64_t generation = c->exports->own[i].generation;
    slr_exports_release(c);
    slr_block_unpin(generation);
    atomic_store(&e->generation, 0);
    slr_exports_hold(c);
    c->exports->own[i].generation = 0;
    slr_exports_release(c);
    atomic_store(&e->state, SLR_EXPORTED_EMPTY);
}

static void return_own(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        collect(c, i);
}

/* Memory that the application has unmapped, or has freed long ago. */
static void revoke_ended(struct slr_comm *c, int i)
{
    slr_exports_hold(c);
    const uint64_t generation = c->exports->own[i].generation;
    slr_exports_release(c);
    bool ended = generation && !slr_block_lives(generation);
    if (!ended && !(generation && slr_block_idle(generation)))
        return;
    const struct slr_exported *e = slr_exports_get(c, c->rank, i);
    slr_exports_hold(c);
    if (ended && e->export.kind == SLR_EXPORT_DESCRIPTORS && atomic_load(&e->state) == SLR_EXPORTED_OPEN) {
        const unsigned at = c->exports->next_lost++ % SLR_EXPORTS_LOST;
        c->exports->lost[at].p = e->export.base;
        c->exports->lost[at].bytes = e->export.size;
    }
    if (c->exports->own[i].generation == generation && (ended || !slr_exports_registered(c, generation)))
        slr_exports_revoke(c, i);
    slr_exports_release(c);
}

/* ---- new exports ---- */

/* A block that is to be exported. */
struct candidate {
    uint64_t generation;
    struct slr_exported_use use;
    bool registered; /* and to be exported for that */
};

static struct slr_exported_registered *next_registered(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++) {
        struct slr_exported_registered *h = &c->exports->registered[i];
        if (h->count && !h->refused && !h->on_use && slr_exports_own(c, h->generation) < 0)
            return h;
    }
    return NULL;
}

/* The block that was used last; when another has to go for it, of those that were used in more than one call. */
static struct slr_exported_seen *next_seen(struct slr_comm *c)
{
    struct slr_exported_seen *best = NULL;
    bool empty = slr_exports_room(c);
    for (int i = 0; i < SLR_EXPORTS_SEEN; i++) {
        struct slr_exported_seen *m = &c->exports->seen[i];
        if (m->generation && !m->refused && (empty || m->use.gap) && (!best || m->use.last > best->use.last) &&
            slr_exports_own(c, m->generation) < 0) /* one that is still being closed counts as exported */
            best = m;
    }
    return best;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether export `i` may go for the candidate (exports.h: Which blocks). */
static bool displaceable(struct slr_comm *c, int i, const struct candidate *x)
{
    const struct slr_exported_own *own = &c->exports->own[i];
    if (x->registered && !slr_exports_registered(c, own->generation))
        return true;
    /* One that has gone must not drive out the next that is idle, and so on, for ever. */
    return x->use.gap > 0 && x->use.last > own->use.last &&
           c->exports->naming - own->use.last > 2 * larger(x->use.gap, own->use.gap);
}

static void displace(struct slr_comm *c, int i)
{
    const struct slr_exported_own *own = &c->exports->own[i];
    struct slr_exported_registered *h = slr_exports_registered(c, own->generation);
    if (h)
        h->on_use = true;
    slr_exports_note(c->exports, own->generation, own->use, false);
    slr_exports_revoke(c, i);
}

/* The index of an empty export; -1: none. Then the one that was not used for longest is revoked if
 * it may be, and is empty at a later tick; not when one is on its way already. */
static int free_index(struct slr_comm *c, const struct candidate *x)
{
    uint64_t now = slr_now_ms();
    bool coming = false;
    int oldest = -1;
    for (int i = 0; i < SLR_EXPORTS; i++) {
        uint32_t state = atomic_load(&slr_exports_get(c, c->rank, i)->state);
        if (state == SLR_EXPORTED_EMPTY)
            return i;
        if (state == SLR_EXPORTED_REVOKED)
            coming = coming || now - c->exports->own[i].revoked_ms < STUCK_MS;
        else if (displaceable(c, i, x) &&
                 (oldest < 0 || c->exports->own[i].use.last < c->exports->own[oldest].use.last))
            oldest = i;
    }
    if (coming || oldest < 0)
        return -1;
    displace(c, oldest);
    return -1;
}

/* The next block to be exported and the index for it. Takes it off the list of those that were seen. */
static bool choose(struct slr_comm *c, struct candidate *x, int *at)
{
    if (slr_reach_doubtful())
        return false;
    const struct slr_exported_registered *h = next_registered(c);
    struct slr_exported_seen *m = h ? NULL : next_seen(c);
    if (!h && !m)
        return false;
    *x = h ? (struct candidate){.generation = h->generation, .use = {.last = c->exports->naming}, .registered = true}
           : (struct candidate){.generation = m->generation, .use = m->use};
    *at = free_index(c, x);
    if (*at >= 0 && m)
        m->generation = 0;
    return *at >= 0;
}

/* The driver does not export it: so that it is not tried again at each tick. Under the lock. */
static void refuse(struct slr_comm *c, const struct candidate *x)
{
    struct slr_exported_registered *h = slr_exports_registered(c, x->generation);
    if (h)
        h->refused = true;
    else
        slr_exports_note(c->exports, x->generation, x->use, true);
}

/* Pinned before it is exported, so that the block can not go back to the driver while peers map it.
 * The driver is called without the lock: gathers take that. */
static void publish(struct slr_comm *c, const struct candidate *x, int i)
{
    struct slr_exported *e = slr_exports_get(c, c->rank, i);
    struct slr_export export = {0};
    bool pinned = slr_block_pin(x->generation);
    bool exported = pinned && slr_export_block(x->generation, c->shared.device, &export);
    slr_exports_hold(c);
    const bool may = !slr_reach_doubtful(); /* else the next tick takes it back */
    if (exported && may) {
        e->export = export;
        c->exports->own[i].generation = x->generation;
        c->exports->own[i].use = x->use;
        atomic_store(&e->generation, x->generation);
        atomic_store(&e->state, SLR_EXPORTED_OPEN); /* last: peers read the rest when they see it */
    } else if (exported) {
        exported = false;
        slr_exports_note(c->exports, x->generation, x->use, false);
    } else {
        refuse(c, x);
    }
    slr_exports_release(c);
    if (pinned && !exported)
        slr_block_unpin(x->generation);
    if (exported)
        slr_log(SLR_LOG_DEBUG, "offer", "comm=%s crank=%d generation=%llu bytes=%llu registered=%d", c->name, c->rank,
                (unsigned long long)x->generation, (unsigned long long)export.size, (int)x->registered);
    if (exported)
        slr_oob_wake(c); /* gathers are staged, and a registration waits, until the peers have mapped it */
}

static void export_wanted(struct slr_comm *c)
{
    struct candidate x;
    int at;
    for (;;) {
        slr_exports_hold(c);
        bool any = choose(c, &x, &at);
        slr_exports_release(c);
        if (!any)
            return;
        publish(c, &x, at);
    }
}

/* Buffers that were in no block: memory that the application has made itself becomes a block where
 * that is possible (cache/blocks.h). Here, because it asks the driver. */
static void enter_external(struct slr_comm *c)
{
    struct slr_exports *exports = c->exports;
    for (int i = 0; i < SLR_EXPORTS_UNKNOWN; i++) {
        struct slr_place place;
        slr_exports_hold(c);
        const bool wanted = exports->unknown[i].wanted;
        CUdeviceptr p = exports->unknown[i].p;
        size_t bytes = exports->unknown[i].bytes;
        exports->unknown[i].wanted = false;
        exports->unknown[i].looked_ms = slr_now_ms();
        slr_exports_release(c);
        if (wanted && slr_get(SLR_S_ALLOC) && slr_external_enter(p, bytes, &place))
            slr_exports_suggest(c, place.generation);
    }
}

/* Programs that sleep unmap their memory and map other memory at the same addresses when they wake up, and fill it:
 * time enough for the peers to map that before the first gather. */
static void enter_again(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS_LOST && slr_get(SLR_S_ALLOC); i++) {
        const CUdeviceptr p = c->exports->lost[i].p; /* this thread's alone */
        struct slr_place place = p ? slr_block_find(p) : (struct slr_place){0};
        if (!p || (!place.generation && !slr_external_enter_again(p, c->exports->lost[i].bytes, &place)))
            continue;
        slr_exports_suggest(c, place.generation);
        c->exports->lost[i].p = 0;
    }
}

static void tick_own(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        revoke_ended(c, i);
    /* The part above goes on for a communicator that has failed, so that its memory comes back. */
    if (c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess)
        return;
    enter_external(c);
    enter_again(c);
    export_wanted(c);
}

void slr_exports_asked(struct slr_comm *c, int reader, int index, uint64_t generation)
{
    struct slr_exported *e = slr_exports_get(c, c->rank, index);
    if (!slr_exports_stands(e, generation) || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    struct slr_pieces pieces;
    const enum slr_export_result made = slr_export_descriptors(generation, &pieces);
    slr_shared_leave();
    if (made != SLR_EXPORT_LATER) /* else the reader asks again */
        slr_oob_send(c, reader, SLR_OOB_GIVE, index, generation, &pieces);
    slr_pieces_close(&pieces); /* the message holds its own reference to the memory */
}

/* ---- memory is short ---- */

#define GIVE_UP_MS 500 /* ten ticks of the peers; the application's allocation waits for it */

/* Whether there is anything to wait for. */
static bool revoke_all(struct slr_comm *c)
{
    bool any = false;
    if (c->pass != SLR_R_RING)
        return false;
    slr_exports_hold(c);
    for (int i = 0; i < SLR_EXPORTS; i++) {
        uint32_t state = atomic_load(&slr_exports_get(c, c->rank, i)->state);
        uint64_t generation = c->exports->own[i].generation;
        if (state == SLR_EXPORTED_OPEN && slr_exports_registered(c, generation) && slr_block_lives(generation))
            continue; /* the application has it: no memory would come of it */
        if (state == SLR_EXPORTED_OPEN)
            slr_exports_revoke(c, i);
        any = any || state != SLR_EXPORTED_EMPTY;
    }
    slr_exports_release(c);
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

/* Meanwhile the peers close their mappings, and the returning thread empties the exports. */
static bool give_up(struct slr_comm *const *list, int n)
{
    uint64_t end = slr_now_ms() + GIVE_UP_MS;
    bool any = false, empty = false;
    for (int i = 0; i < n; i++)
        any |= revoke_all(list[i]);
    while (any && !empty && slr_now_ms() < end) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        empty = true;
        for (int i = 0; i < n; i++)
            empty = empty && all_empty(list[i]);
    }
    return any;
}

bool slr_exports_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    const bool any = give_up(list, n);
    for (int i = 0; i < n; i++)
        slr_comm_put(list[i]);
    return any;
}

void slr_exports_suspend(struct slr_comm *c, bool waits)
{
    if (waits)
        give_up(&c, 1);
    else
        revoke_all(c);
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
    slr_exports_hold(c);
    if (c->exports->naming == c->exports->enqueued && !c->exports->launching)
        c->exports->closed = true;
    bool closed = c->exports->closed;
    slr_exports_release(c);
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
    slr_exports_hold(c);
    for (int i = 0; i < SLR_EXPORTS; i++)
        slr_exports_revoke(c, i);
    slr_exports_release(c);
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
    tick_own(c);
    const bool left = !ring || map_peers(c);
    if (left || any_revoked(c))
        wake_return();
    slr_shared_leave();
}

void slr_exports_return(struct slr_comm *c)
{
    if (!c->shared.control || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    return_own(c);
    if (c->pass == SLR_R_RING && atomic_load(&c->error) == ncclSuccess)
        slr_exports_return_peers(c);
    else
        wind_up(c);
    slr_shared_leave();
}

void slr_exports_close(struct slr_comm *c)
{
    /* A mapping that stays must not be said to be closed: `stuck` keeps this rank from saying LEFT. */
    c->shared.stuck |= !slr_exports_unmap_all(c);
    for (int i = 0; i < SLR_EXPORTS; i++)
        c->shared.pinned[i] = c->exports->own[i].generation;
}
