/* Offers: what the data path and registrations ask; whoever may call from any thread. */
#include "plugin/offers.h"

#include <time.h>
#include "cache/external.h"
#include "cache/blocks.h"
#include "plugin/mail.h"
#include "plugin/offers_impl.h"

void slr_offers_begin(struct slr_comm *c, uint64_t call)
{
    slr_offers_lock(c);
    c->offers.naming = call;
    slr_offers_unlock(c);
}

void slr_offers_end(struct slr_comm *c, uint64_t call)
{
    slr_offers_lock(c);
    c->offers.enqueued = call;
    slr_offers_unlock(c);
}

int slr_offers_own(const struct slr_comm *c, uint64_t generation)
{
    for (int i = 0; i < SLR_OFFERS; i++)
        if (c->offers.own[i].generation == generation)
            return i;
    return -1;
}

struct slr_offer_held *slr_offers_held(struct slr_comm *c, uint64_t generation)
{
    for (int i = 0; i < SLR_OFFERS; i++)
        if (c->offers.held[i].count && c->offers.held[i].generation == generation)
            return &c->offers.held[i];
    return NULL;
}

/* ---- blocks that gathers meet ---- */

/* The usual gap follows longer ones at once and shorter ones slowly: a block that is used several times in a row and
 * then not for long is one that is not used for long. */
static void used(struct slr_offer_use *use, uint64_t call)
{
    if (call <= use->last)
        return;
    uint64_t gap = call - use->last, usual = use->gap - use->gap / 8;
    use->gap = gap > usual ? gap : usual;
    use->last = call;
}

void slr_offers_meet(struct slr_offers *o, uint64_t generation, struct slr_offer_use use, bool refused)
{
    struct slr_offer_met *at = &o->met[0];
    for (int i = 0; i < SLR_OFFERS_MET; i++) {
        if (o->met[i].generation == generation) {
            used(&o->met[i].use, use.last);
            o->met[i].refused |= refused;
            return;
        }
        if (at->generation && (!o->met[i].generation || o->met[i].use.last < at->use.last))
            at = &o->met[i];
    }
    *at = (struct slr_offer_met){.generation = generation, .use = use, .refused = refused};
}

void slr_offers_unknown(struct slr_comm *c, CUdeviceptr p, size_t bytes)
{
    struct slr_offers *o = &c->offers;
    int at = -1;
    if (!slr_get(SLR_S_ZERO_COPY) || !slr_get(SLR_S_ALLOC))
        return;
    slr_offers_lock(c);
    for (int i = 0; i < SLR_OFFERS_UNKNOWN && at != -2; i++) {
        if (!o->unknown[i].p)
            at = i;
        else if (o->unknown[i].p == p)
            at = -2;
    }
    if (at >= 0) {
        o->unknown[at].p = p;
        o->unknown[at].bytes = bytes;
    }
    slr_offers_unlock(c);
}

/* Whether the block is offered and the peer has it mapped; else asks for it. Under the lock. */
static bool may_name(struct slr_comm *c, uint64_t generation, int peer, uint64_t call)
{
    int i = slr_offers_own(c, generation);
    if (i < 0) {
        slr_offers_meet(&c->offers, generation, (struct slr_offer_use){.last = call}, false);
        return false;
    }
    used(&c->offers.own[i].use, call);
    return !c->offers.closed && atomic_load(&slr_offers_entry(c, c->rank, i)->state) == SLR_OFFER_OFFERED &&
           atomic_load(slr_offers_ack(c, c->rank, peer, i)) == generation;
}

struct slr_spot slr_offer_spot(struct slr_comm *c, const struct slr_place *at, size_t skip, size_t bytes, int peer,
                               uint64_t call)
{
    size_t offset = at->offset + skip;
    if (!at->generation || offset + bytes > at->size || !slr_get(SLR_S_ZERO_COPY))
        return (struct slr_spot){0};
    slr_offers_lock(c);
    bool named = may_name(c, at->generation, peer, call);
    slr_offers_unlock(c);
    return named ? (struct slr_spot){at->generation, offset} : (struct slr_spot){0};
}

CUdeviceptr slr_offer_mapped(struct slr_comm *c, int peer, struct slr_spot spot)
{
    CUdeviceptr at = 0; /* the peer names only what this rank has acknowledged and not closed */
    slr_offers_lock(c);
    for (int i = 0; i < SLR_OFFERS && !c->offers.closed; i++)
        if (c->offers.mapped[peer][i].generation == spot.generation)
            at = c->offers.mapped[peer][i].base + spot.offset;
    slr_offers_unlock(c);
    return at;
}

/* ---- blocks that are registered ---- */

bool slr_offers_hold(struct slr_comm *c, uint64_t generation)
{
    slr_offers_lock(c);
    struct slr_offer_held *h = slr_offers_held(c, generation);
    for (int i = 0; i < SLR_OFFERS && !h; i++)
        if (!c->offers.held[i].count)
            h = &c->offers.held[i];
    if (h && h->count++ == 0) {
        h->generation = generation;
        h->refused = false;
    }
    slr_offers_unlock(c);
    return h != NULL;
}

void slr_offers_unhold(struct slr_comm *c, uint64_t generation, bool revoke)
{
    slr_offers_lock(c);
    struct slr_offer_held *h = slr_offers_held(c, generation);
    int i = slr_offers_own(c, generation);
    if (h && --h->count == 0 && revoke && i >= 0)
        slr_offers_revoke(c, i);
    slr_offers_unlock(c);
}

static bool will_not_map(const struct slr_comm *c, int i, int peer)
{
    return c->shared.peer_dead[peer] || atomic_load(&c->shared.control->post[peer].state) >= SLR_RANK_FAILED ||
           (atomic_load(slr_offers_ack(c, c->rank, peer, i)) & SLR_ACK_REFUSED);
}

bool slr_offers_settled(struct slr_comm *c, uint64_t generation)
{
    bool settled = true;
    if (atomic_load(&c->error) != ncclSuccess)
        return true;
    slr_offers_lock(c);
    const struct slr_offer_held *h = slr_offers_held(c, generation);
    int i = slr_offers_own(c, generation);
    if (h && !h->refused) {
        settled = i >= 0 && atomic_load(&slr_offers_entry(c, c->rank, i)->state) == SLR_OFFER_OFFERED;
        for (int r = 0; r < c->nranks && settled; r++)
            settled =
                r == c->rank || atomic_load(slr_offers_ack(c, c->rank, r, i)) == generation || will_not_map(c, i, r);
    }
    slr_offers_unlock(c);
    return settled;
}

bool slr_offers_gone(struct slr_comm *c, uint64_t generation)
{
    slr_offers_lock(c);
    bool gone = slr_offers_own(c, generation) < 0 || slr_offers_held(c, generation);
    slr_offers_unlock(c);
    return gone;
}

void slr_offers_suggest(struct slr_comm *c, uint64_t generation)
{
    slr_offers_lock(c);
    if (slr_offers_own(c, generation) < 0)
        slr_offers_meet(&c->offers, generation, (struct slr_offer_use){.last = c->offers.naming}, false);
    slr_offers_unlock(c);
}

/* ---- memory is short ---- */

#define GIVE_UP_MS 500

static bool revoke_all(struct slr_comm *c)
{
    bool any = false;
    if (c->pass != SLR_R_RING)
        return false;
    slr_offers_lock(c);
    for (int i = 0; i < SLR_OFFERS; i++) {
        uint32_t state = atomic_load(&slr_offers_entry(c, c->rank, i)->state);
        uint64_t generation = c->offers.own[i].generation;
        if (state == SLR_OFFER_OFFERED && slr_offers_held(c, generation) && slr_block_lives(generation))
            continue; /* the application has it: no memory would come of it */
        if (state == SLR_OFFER_OFFERED)
            slr_offers_revoke(c, i);
        any = any || state != SLR_OFFER_EMPTY;
    }
    slr_offers_unlock(c);
    if (any)
        slr_mail_look(c);
    return any;
}

static bool all_empty(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_OFFERS && c->pass == SLR_R_RING; i++)
        if (atomic_load(&slr_offers_entry(c, c->rank, i)->state) == SLR_OFFER_REVOKED)
            return false;
    return true;
}

bool slr_offers_give_up(void)
{
    struct slr_comm *list[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
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
    for (int i = 0; i < n; i++)
        slr_comm_put(list[i]);
    return any;
}

/* ---- the house-keeping thread ---- */

/* A failed communicator: its last calls are enqueued or never will be, so when its sending part is idle it writes into
 * nobody's memory any more, and when all of it is, it reads from nobody's. */
static void wind_up(struct slr_comm *c)
{
    if (c->offers.unmapped)
        return;
    slr_offers_lock(c);
    if (c->offers.naming == c->offers.enqueued)
        c->offers.closed = true;
    bool closed = c->offers.closed;
    slr_offers_unlock(c);
    if (!closed || !slr_ring_sends_idle(&c->ring))
        return;
    atomic_store(&c->shared.control->post[c->rank].drained, 1);
    if (!slr_ring_idle(&c->ring))
        return;
    slr_offers_unmap_all(c);
    c->offers.unmapped = true;
}

/* Refused when it connected: what was offered before, for a registration, goes back. */
static void take_back(struct slr_comm *c)
{
    slr_offers_lock(c);
    for (int i = 0; i < SLR_OFFERS; i++)
        slr_offers_revoke(c, i);
    slr_offers_unlock(c);
}

void slr_offers_tick(struct slr_comm *c)
{
    bool ring = c->pass == SLR_R_RING;
    if (!c->shared.control || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    if (!ring)
        take_back(c);
    slr_offers_tick_own(c);
    if (ring && atomic_load(&c->error) == ncclSuccess)
        slr_offers_tick_peers(c);
    else
        wind_up(c);
    slr_shared_leave();
}

void slr_offers_close(struct slr_comm *c)
{
    c->shared.stuck |= !slr_offers_unmap_all(c);
    for (int i = 0; i < SLR_OFFERS; i++)
        c->shared.pinned[i] = c->offers.own[i].generation;
}
