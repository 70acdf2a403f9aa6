#include "plugin/offers.h"

#include <time.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/comm.h"

static void lock(struct slr_comm *c)
{
    pthread_mutex_lock(&c->offers.lock);
}

static void unlock(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->offers.lock);
}

void slr_offers_begin(struct slr_comm *c, uint64_t call)
{
    lock(c);
    c->offers.naming = call;
    unlock(c);
}

void slr_offers_end(struct slr_comm *c, uint64_t call)
{
    lock(c);
    c->offers.enqueued = call;
    unlock(c);
}

static struct slr_offer *entry_of(const struct slr_comm *c, int owner, int i)
{
    return &c->shared.control->post[owner].offer[i];
}

static _Atomic uint64_t *ack_of(const struct slr_comm *c, int owner, int reader, int i)
{
    return &c->shared.control->post[reader].ack[owner][i];
}

static int own_index(const struct slr_comm *c, uint64_t generation)
{
    for (int i = 0; i < SLR_OFFERS; i++)
        if (c->offers.own[i].generation == generation)
            return i;
    return -1;
}

static bool refused_before(const struct slr_offers *o, uint64_t generation)
{
    for (unsigned i = 0; i < sizeof o->refused / sizeof *o->refused; i++)
        if (o->refused[i] == generation)
            return true;
    return false;
}

static void want(struct slr_offers *o, const struct slr_place *place)
{
    unsigned n = sizeof o->wanted / sizeof *o->wanted, free_at = n;
    for (unsigned i = 0; i < n; i++) {
        if (o->wanted[i].generation == place->generation)
            return;
        if (!o->wanted[i].generation)
            free_at = i;
    }
    if (free_at == n || refused_before(o, place->generation))
        return;
    o->wanted[free_at].generation = place->generation;
    o->wanted[free_at].base = place->base;
    o->wanted[free_at].size = place->size;
}

/* The block's entry, when it is offered and the peer has it mapped; else asks for it. Under the lock. */
static bool may_name(struct slr_comm *c, const struct slr_place *place, int peer, uint64_t call)
{
    int i = own_index(c, place->generation);
    if (i < 0) {
        want(&c->offers, place);
        return false;
    }
    c->offers.own[i].used = call;
    return atomic_load(&entry_of(c, c->rank, i)->state) == SLR_OFFER_OFFERED &&
           atomic_load(ack_of(c, c->rank, peer, i)) == place->generation;
}

struct slr_spot slr_offer_spot(struct slr_comm *c, CUdeviceptr p, size_t bytes, int peer, uint64_t call)
{
    struct slr_place place = slr_block_find(p);
    if (!place.generation || place.offset + bytes > place.size || !slr_get(SLR_S_ZERO_COPY))
        return (struct slr_spot){0};
    lock(c);
    bool named = may_name(c, &place, peer, call);
    unlock(c);
    return named ? (struct slr_spot){place.generation, place.offset} : (struct slr_spot){0};
}

CUdeviceptr slr_offer_mapped(struct slr_comm *c, int peer, struct slr_spot spot)
{
    CUdeviceptr at = 0; /* stays so never: the peer names only what this rank has acknowledged and not closed */
    lock(c);
    for (int i = 0; i < SLR_OFFERS; i++)
        if (c->offers.mapped[peer][i].generation == spot.generation)
            at = c->offers.mapped[peer][i].base + spot.offset;
    unlock(c);
    return at;
}

/* ---- the owner's side ---- */

static void revoke(struct slr_comm *c, int i)
{
    struct slr_offer *e = entry_of(c, c->rank, i);
    atomic_store(&e->last_call, c->offers.naming);
    atomic_store(&e->state, SLR_OFFER_REVOKED);
}

static bool let_go(const struct slr_comm *c, int i)
{
    for (int r = 0; r < c->nranks; r++) {
        bool gone = c->shared.peer_dead[r] || atomic_load(&c->shared.control->post[r].state) == SLR_RANK_LEFT;
        if (r != c->rank && !gone && atomic_load(ack_of(c, c->rank, r, i)) != 0)
            return false;
    }
    return true;
}

/* The generation to unpin when the entry was revoked and nobody has mapped it any more, or 0. */
static uint64_t collect(struct slr_comm *c, int i)
{
    struct slr_offer *e = entry_of(c, c->rank, i);
    uint64_t generation = c->offers.own[i].generation;
    if (atomic_load(&e->state) != SLR_OFFER_REVOKED || !let_go(c, i))
        return 0;
    c->offers.own[i].generation = 0;
    return generation;
}

/* Empty only when its block has been unpinned: who waits for memory looks at the state. */
static void give_up_block(struct slr_comm *c, int i, uint64_t generation)
{
    struct slr_offer *e = entry_of(c, c->rank, i);
    slr_block_unpin(generation);
    atomic_store(&e->generation, 0);
    atomic_store(&e->state, SLR_OFFER_EMPTY);
}

/* An empty entry; else the least recently used one is revoked, and there is one at a later tick. */
static int free_entry(struct slr_comm *c)
{
    int oldest = -1;
    for (int i = 0; i < SLR_OFFERS; i++) {
        uint32_t state = atomic_load(&entry_of(c, c->rank, i)->state);
        if (state == SLR_OFFER_EMPTY)
            return i;
        if (state == SLR_OFFER_REVOKED)
            return -1; /* one is on its way */
        if (oldest < 0 || c->offers.own[i].used < c->offers.own[oldest].used)
            oldest = i;
    }
    revoke(c, oldest);
    return -1;
}

static bool exportable(CUdeviceptr base)
{
    int legacy = 0;
    return slr_real.cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base) ==
               CUDA_SUCCESS &&
           legacy;
}

static void refuse(struct slr_offers *o, uint64_t generation)
{
    o->refused[o->refused_at++ % (sizeof o->refused / sizeof *o->refused)] = generation;
}

static void make_offer(struct slr_comm *c, int i, uint64_t generation, CUdeviceptr base, size_t size)
{
    struct slr_offer *e = entry_of(c, c->rank, i);
    e->size = size;
    e->export.base = base;
    if (!exportable(base) || slr_real.cuIpcGetMemHandle(&e->export.handle, base) != CUDA_SUCCESS) {
        refuse(&c->offers, generation);
        slr_block_unpin(generation);
        return;
    }
    c->offers.own[i].generation = generation;
    c->offers.own[i].used = c->offers.naming;
    atomic_store(&e->generation, generation);
    atomic_store(&e->state, SLR_OFFER_OFFERED);
    slr_log(SLR_LOG_DEBUG, "offer", "comm=%s crank=%d generation=%llu bytes=%zu", c->name, c->rank,
            (unsigned long long)generation, size);
}

static void export_wanted(struct slr_comm *c)
{
    for (unsigned w = 0; w < sizeof c->offers.wanted / sizeof *c->offers.wanted; w++) {
        uint64_t generation = c->offers.wanted[w].generation;
        if (!generation)
            continue;
        int i = free_entry(c);
        if (i < 0)
            return;
        if (slr_block_pin(generation))
            make_offer(c, i, generation, c->offers.wanted[w].base, c->offers.wanted[w].size);
        c->offers.wanted[w].generation = 0;
    }
}

/* ---- the peers' side ---- */

static bool same_process(const struct slr_comm *c, int peer)
{
    return c->shared.control->post[peer].pid == c->shared.control->post[c->rank].pid;
}

/* Marks an acknowledgement while the block is being opened: the owner must not give the block back, and does not name
 * it yet. */
#define OPENING (UINT64_C(1) << 63)

static bool open_offer(const struct slr_comm *c, int peer, const struct slr_offer *e, CUdeviceptr *base)
{
    *base = e->export.base;
    return same_process(c, peer) ||
           slr_real.cuIpcOpenMemHandle(base, e->export.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
}

static bool stands(const struct slr_offer *e, uint64_t generation)
{
    return atomic_load(&e->state) == SLR_OFFER_OFFERED && atomic_load(&e->generation) == generation;
}

/* Opening and closing may wait for the device, so they are done without the lock; only the watchdog changes `mapped`.
 */
static void map_offer(struct slr_comm *c, int peer, int i)
{
    struct slr_offer *e = entry_of(c, peer, i);
    _Atomic uint64_t *ack = ack_of(c, peer, c->rank, i);
    uint64_t generation = atomic_load(&e->generation), seen = generation ^ (uint64_t)(peer + 1) << 48;
    CUdeviceptr base;
    if (!generation || !stands(e, generation) || refused_before(&c->offers, seen))
        return;
    /* Said before it is looked at again: either this rank sees a revocation, or the owner sees this. */
    atomic_store(ack, generation | OPENING);
    if (!stands(e, generation)) {
        atomic_store(ack, 0);
        return;
    }
    if (!open_offer(c, peer, e, &base)) {
        atomic_store(ack, 0);
        refuse(&c->offers, seen);
        return;
    }
    lock(c);
    c->offers.mapped[peer][i].generation = generation;
    c->offers.mapped[peer][i].base = base;
    c->offers.mapped[peer][i].closing = false;
    unlock(c);
    atomic_store(ack, generation);
    atomic_fetch_add(&slr_counters.mapped, 1);
}

static void unmap_offer(struct slr_comm *c, int peer, int i)
{
    lock(c);
    c->offers.mapped[peer][i].generation = 0;
    unlock(c);
    /* What could not be closed stays acknowledged, so that its owner does not give it back. */
    if (!same_process(c, peer) &&
        slr_cu_status(slr_real.cuIpcCloseMemHandle(c->offers.mapped[peer][i].base), "cuIpcCloseMemHandle") != SLR_OK)
        return;
    atomic_store(ack_of(c, peer, c->rank, i), 0);
}

/* A revoked block is closed when the last call that may name it has been enqueued here, and completed. */
static void close_revoked(struct slr_comm *c, int peer, int i)
{
    struct slr_offer *e = entry_of(c, peer, i);
    if (atomic_load(&e->state) != SLR_OFFER_REVOKED)
        return;
    lock(c);
    if (!c->offers.mapped[peer][i].closing && c->offers.enqueued >= atomic_load(&e->last_call)) {
        c->offers.mapped[peer][i].closing = true;
        c->offers.mapped[peer][i].until = atomic_load(&c->ring.issued);
    }
    unlock(c);
    if (c->offers.mapped[peer][i].closing && slr_ring_reached(&c->ring, c->offers.mapped[peer][i].until))
        unmap_offer(c, peer, i);
}

static void serve_peer(struct slr_comm *c, int peer)
{
    if (c->shared.peer_dead[peer])
        return;
    for (int i = 0; i < SLR_OFFERS; i++)
        if (c->offers.mapped[peer][i].generation)
            close_revoked(c, peer, i);
        else
            map_offer(c, peer, i);
}

void slr_offers_tick(struct slr_comm *c)
{
    uint64_t unpin[SLR_OFFERS];
    if (c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess || slr_shared_enter(&c->shared) != SLR_OK)
        return;
    lock(c);
    for (int i = 0; i < SLR_OFFERS; i++)
        unpin[i] = collect(c, i);
    unlock(c);
    for (int i = 0; i < SLR_OFFERS; i++)
        if (unpin[i])
            give_up_block(c, i, unpin[i]);
    lock(c);
    export_wanted(c);
    unlock(c);
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            serve_peer(c, r);
    slr_shared_leave();
}

#define GIVE_UP_MS 500

static bool revoke_all(struct slr_comm *c)
{
    bool any = false;
    if (c->pass != SLR_R_RING)
        return false;
    lock(c);
    for (int i = 0; i < SLR_OFFERS; i++) {
        uint32_t state = atomic_load(&entry_of(c, c->rank, i)->state);
        if (state == SLR_OFFER_OFFERED)
            revoke(c, i);
        any = any || state != SLR_OFFER_EMPTY;
    }
    unlock(c);
    return any;
}

static bool all_empty(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_OFFERS && c->pass == SLR_R_RING; i++)
        if (atomic_load(&entry_of(c, c->rank, i)->state) == SLR_OFFER_REVOKED)
            return false;
    return true;
}

bool slr_offers_give_up(void)
{
    struct slr_comm *list[64];
    int n = slr_comm_hold_all(list, 64);
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

void slr_offers_close(struct slr_comm *c)
{
    for (int r = 0; r < c->nranks; r++)
        for (int i = 0; i < SLR_OFFERS && r != c->rank; i++)
            if (c->offers.mapped[r][i].generation)
                unmap_offer(c, r, i);
    for (int i = 0; i < SLR_OFFERS; i++)
        c->shared.pinned[i] = c->offers.own[i].generation;
}
