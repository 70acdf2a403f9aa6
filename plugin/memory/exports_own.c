/* Offers: the owner's side. The house-keeping thread's, but for slr_exports_revoke. */
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "cache/external.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/memory/exports_impl.h"

/* An entry whose peers have not closed it for so long is stuck: others are not kept waiting for its place. */
#define STUCK_MS 2000

/* ---- revoked entries ---- */

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

/* Empty only when its block has been unpinned: who waits for memory looks at the state. */
static void collect(struct slr_comm *c, int i)
{
    struct slr_exported *e = slr_exports_entry(c, c->rank, i);
    if (atomic_load(&e->state) != SLR_EXPORTED_REVOKED || !let_go(c, i))
        return;
    slr_block_unpin(c->exports->own[i].generation);
    atomic_store(&e->generation, 0);
    slr_exports_lock(c);
    c->exports->own[i].generation = 0;
    slr_exports_unlock(c);
    atomic_store(&e->state, SLR_EXPORTED_EMPTY);
}

/* Memory that the application has unmapped, or has freed long ago. */
static void revoke_ended(struct slr_comm *c, int i)
{
    uint64_t generation = c->exports->own[i].generation;
    bool ended = generation && !slr_block_lives(generation);
    if (!ended && !(generation && slr_block_idle(generation)))
        return;
    slr_exports_lock(c);
    if (ended || !slr_exports_held(c, generation))
        slr_exports_revoke(c, i);
    slr_exports_unlock(c);
}

/* ---- new entries ---- */

/* What is to be offered. */
struct candidate {
    uint64_t generation;
    struct slr_exported_use use;
    bool held;
};

static struct slr_exported_held *next_held(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++) {
        struct slr_exported_held *h = &c->exports->held[i];
        if (h->count && !h->refused && slr_exports_own(c, h->generation) < 0)
            return h;
    }
    return NULL;
}

static bool any_empty(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (atomic_load(&slr_exports_entry(c, c->rank, i)->state) == SLR_EXPORTED_EMPTY)
            return true;
    return false;
}

/* The block that was met last; when another has to go for it, of those that were met more than once. */
static struct slr_exported_met *next_met(struct slr_comm *c)
{
    struct slr_exported_met *best = NULL;
    bool empty = any_empty(c);
    for (int i = 0; i < SLR_EXPORTS_MET; i++) {
        struct slr_exported_met *m = &c->exports->met[i];
        if (m->generation && !m->refused && (empty || m->use.gap) && (!best || m->use.last > best->use.last) &&
            slr_exports_own(c, m->generation) < 0) /* one that is still being closed has a place of its own */
            best = m;
    }
    return best;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether the entry's place may go to the candidate. */
static bool displaceable(struct slr_comm *c, int i, const struct candidate *x)
{
    const struct slr_exported_own *own = &c->exports->own[i];
    if (slr_exports_held(c, own->generation))
        return false;
    if (x->held)
        return true;
    return x->use.gap > 0 && c->exports->naming - own->use.last > 2 * larger(x->use.gap, own->use.gap);
}

/* An empty entry; -1: none. Then the one that was not used for longest is revoked if it may be, and is empty at a later
 * tick; not when one is on its way already. */
static int free_entry(struct slr_comm *c, const struct candidate *x)
{
    uint64_t now = slr_now_ms();
    bool coming = false;
    int oldest = -1;
    for (int i = 0; i < SLR_EXPORTS; i++) {
        uint32_t state = atomic_load(&slr_exports_entry(c, c->rank, i)->state);
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
    slr_exports_meet(c->exports, c->exports->own[oldest].generation, c->exports->own[oldest].use, false);
    slr_exports_revoke(c, oldest);
    return -1;
}

/* The next block to be offered and the entry for it. Takes it off the list of those that were met. */
static bool choose(struct slr_comm *c, struct candidate *x, int *at)
{
    const struct slr_exported_held *h = next_held(c);
    struct slr_exported_met *m = h ? NULL : next_met(c);
    if (!h && !m)
        return false;
    *x = h ? (struct candidate){.generation = h->generation, .use = {.last = c->exports->naming}, .held = true}
           : (struct candidate){.generation = m->generation, .use = m->use};
    *at = free_entry(c, x);
    if (*at >= 0 && m)
        m->generation = 0;
    return *at >= 0;
}

/* Under the lock. */
static void refuse(struct slr_comm *c, const struct candidate *x)
{
    struct slr_exported_held *h = slr_exports_held(c, x->generation);
    if (h)
        h->refused = true;
    else
        slr_exports_meet(c->exports, x->generation, x->use, true);
}

static void publish(struct slr_comm *c, const struct candidate *x, int i)
{
    struct slr_exported *e = slr_exports_entry(c, c->rank, i);
    struct slr_export export = {0};
    bool pinned = slr_block_pin(x->generation), exported = pinned && slr_export_block(x->generation, &export);
    slr_exports_lock(c);
    if (exported) {
        e->export = export;
        c->exports->own[i].generation = x->generation;
        c->exports->own[i].use = x->use;
        atomic_store(&e->generation, x->generation);
        atomic_store(&e->state, SLR_EXPORTED_OPEN);
    } else {
        refuse(c, x);
    }
    slr_exports_unlock(c);
    if (pinned && !exported)
        slr_block_unpin(x->generation);
    if (exported)
        slr_log(SLR_LOG_DEBUG, "offer", "comm=%s crank=%d generation=%llu bytes=%llu registered=%d", c->name, c->rank,
                (unsigned long long)x->generation, (unsigned long long)export.size, (int)x->held);
    if (exported && x->held)
        slr_oob_wake(c); /* somebody waits for it */
}

static void offer_wanted(struct slr_comm *c)
{
    struct candidate x;
    int at;
    for (;;) {
        slr_exports_lock(c);
        bool any = choose(c, &x, &at);
        slr_exports_unlock(c);
        if (!any)
            return;
        publish(c, &x, at);
    }
}

/* Looks at the buffers that were in no block. */
static void enter_external(struct slr_comm *c)
{
    struct slr_exports *o = c->exports;
    for (int i = 0; i < SLR_EXPORTS_UNKNOWN; i++) {
        struct slr_place place;
        slr_exports_lock(c);
        CUdeviceptr p = o->unknown[i].p;
        size_t bytes = o->unknown[i].bytes;
        o->unknown[i].p = 0;
        slr_exports_unlock(c);
        if (p && slr_get(SLR_S_ALLOC) && slr_external_enter(p, bytes, &place))
            slr_exports_suggest(c, place.generation);
    }
}

void slr_exports_tick_own(struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++) {
        revoke_ended(c, i);
        collect(c, i);
    }
    if (c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess)
        return;
    enter_external(c);
    offer_wanted(c);
}

void slr_exports_asked(struct slr_comm *c, int reader, int entry, uint64_t generation)
{
    struct slr_exported *e = slr_exports_entry(c, c->rank, entry);
    if (!slr_exports_stands(e, generation) || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    int fd = slr_export_descriptor(generation);
    slr_shared_leave();
    if (fd != SLR_EXPORT_LATER) /* else the reader asks again */
        slr_oob_send(c, reader, SLR_OOB_GIVE, entry, generation, fd);
    if (fd >= 0)
        close(fd);
}
