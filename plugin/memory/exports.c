/* SPDX-License-Identifier: Apache-2.0 */
/* Exported blocks: what gathers and registrations ask, from any thread. */
#include "plugin/memory/exports.h"

#include <time.h>
#include "base/hash.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/blocks.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/memory/exports_impl.h"

void slr_exports_begin(struct slr_comm *c, uint64_t call)
{
    slr_exports_hold(c);
    c->exports->naming = call;
}

void slr_exports_end(struct slr_comm *c, uint64_t call)
{
    slr_exports_hold(c);
    c->exports->enqueued = call;
    bool wake = c->exports->wake;
    c->exports->wake = false;
    slr_exports_release(c);
    /* The sooner a block is mapped, the fewer gathers of it are staged. */
    if (wake)
        slr_oob_wake_self();
}

void slr_exports_launching(struct slr_comm *c, bool launching)
{
    slr_exports_hold(c);
    c->exports->launching += launching ? 1 : -1u;
    slr_exports_release(c);
}

void slr_exports_hold(struct slr_comm *c)
{
    pthread_mutex_lock(&c->exports->lock);
}

void slr_exports_release(struct slr_comm *c)
{
    pthread_mutex_unlock(&c->exports->lock);
}

bool slr_exports_room(const struct slr_comm *c)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (atomic_load(&slr_exports_get(c, c->rank, i)->state) == SLR_EXPORTED_EMPTY)
            return true;
    return false;
}

int slr_exports_own(const struct slr_comm *c, uint64_t generation)
{
    uint8_t *at = &c->exports->own_at[generation % SLR_EXPORTS_HINTS];
    int i = *at;
    if (c->exports->own[i].generation == generation)
        return i;
    for (i = 0; i < SLR_EXPORTS && c->exports->own[i].generation != generation; i++)
        ;
    if (i == SLR_EXPORTS)
        return -1;
    *at = (uint8_t)i;
    return i;
}

struct slr_exported_registered *slr_exports_registered(struct slr_comm *c, uint64_t generation)
{
    for (int i = 0; i < SLR_EXPORTS; i++)
        if (c->exports->registered[i].count && c->exports->registered[i].generation == generation)
            return &c->exports->registered[i];
    return NULL;
}

/* ---- blocks that gathers use ---- */

#define LOOK_AGAIN_MS 10 /* at a buffer that could not be entered among the blocks */

/* The usual gap follows longer ones at once and shorter ones slowly: a block that is used several
 * times in a row and then not for long is one that is not used for long. */
static void used(struct slr_exported_use *use, uint64_t call)
{
    if (call <= use->last)
        return;
    uint64_t gap = call - use->last, usual = use->gap - use->gap / 8;
    use->gap = gap > usual ? gap : usual;
    use->last = call;
}

bool slr_exports_note(struct slr_exports *exports, uint64_t generation, struct slr_exported_use use, bool refused)
{
    struct slr_exported_seen *at = &exports->seen[0]; /* a free one, else the one that was used longest ago */
    for (int i = 0; i < SLR_EXPORTS_SEEN; i++) {
        if (exports->seen[i].generation == generation) {
            used(&exports->seen[i].use, use.last);
            exports->seen[i].refused |= refused;
            return false;
        }
        if (at->generation && (!exports->seen[i].generation || exports->seen[i].use.last < at->use.last))
            at = &exports->seen[i];
    }
    *at = (struct slr_exported_seen){.generation = generation, .use = use, .refused = refused};
    return true;
}

void slr_exports_unknown(struct slr_comm *c, CUdeviceptr p, size_t bytes)
{
    struct slr_exports *exports = c->exports;
    if (!slr_get(SLR_S_ZERO_COPY) || !slr_get(SLR_S_ALLOC) || slr_reach_past())
        return;
    slr_exports_hold(c);
    struct slr_exported_unknown *u = &exports->unknown[slr_mix(p, bytes) % SLR_EXPORTS_UNKNOWN];
    const bool same = u->p == p && u->bytes == bytes;
    if (!u->wanted && (!same || slr_now_ms() - u->looked_ms >= LOOK_AGAIN_MS)) {
        *u = (struct slr_exported_unknown){.p = p, .bytes = bytes, .wanted = true};
        exports->wake = true;
    }
    slr_exports_release(c);
}

/* Whether the block is exported and the peer has it mapped; else notes it. Under the lock: a
 * revocation that comes later finds this call in `use.last`, and waits for it. */
static bool may_name(struct slr_comm *c, uint64_t generation, int peer, uint64_t call)
{
    int i = slr_exports_own(c, generation);
    if (i < 0) {
        bool first = slr_exports_note(c->exports, generation, (struct slr_exported_use){.last = call}, false);
        c->exports->wake = c->exports->wake || (first && slr_exports_room(c));
        return false;
    }
    used(&c->exports->own[i].use, call);
    return !c->exports->closed && atomic_load(&slr_exports_get(c, c->rank, i)->state) == SLR_EXPORTED_OPEN &&
           atomic_load(slr_exports_ack(c, c->rank, peer, i)) == generation;
}

struct slr_remote_place slr_exported_place(struct slr_comm *c, const struct slr_place *at, size_t skip, size_t bytes,
                                           int peer, uint64_t call)
{
    size_t offset = at->offset + skip;
    if (!at->generation || offset + bytes > at->size || !slr_get(SLR_S_ZERO_COPY) || slr_reach_doubtful())
        return (struct slr_remote_place){0};
    return may_name(c, at->generation, peer, call) ? (struct slr_remote_place){at->generation, offset}
                                                   : (struct slr_remote_place){0};
}

bool slr_exported_near(struct slr_comm *c, int peer, struct slr_remote_place place)
{
    const int i = slr_exports_own(c, place.generation);
    return i >= 0 && slr_exports_near(c, peer, &slr_exports_get(c, c->rank, i)->export);
}

static const struct slr_exported_mapped *find_mapped(const struct slr_comm *c, int peer, uint64_t generation, int *i)
{
    const struct slr_exported_mapped *all = c->exports->mapped[peer];
    uint8_t *at = &c->exports->mapped_at[peer][generation % SLR_EXPORTS_HINTS];
    *i = *at;
    if (all[*i].generation != generation)
        for (*i = 0; *i < SLR_EXPORTS && all[*i].generation != generation; ++*i)
            ;
    if (*i == SLR_EXPORTS || c->exports->closed)
        return NULL;
    *at = (uint8_t)*i;
    return &all[*i];
}

/* The peer names only what this rank has acknowledged, and it closes a mapping only after the last call that named it:
 * so there is one. */
CUdeviceptr slr_exported_mapped(struct slr_comm *c, int peer, struct slr_remote_place place, enum slr_memory *kind)
{
    int i;
    const struct slr_exported_mapped *m = find_mapped(c, peer, place.generation, &i);
    if (m)
        *kind = m->kind;
    return m ? m->base + place.offset : 0;
}

CUdeviceptr slr_exported_readable(struct slr_comm *c, int peer, struct slr_remote_place place, size_t bytes,
                                  enum slr_memory *kind)
{
    int i;
    const struct slr_exported_mapped *m = find_mapped(c, peer, place.generation, &i);
    if (!m || m->closing) /* one that is being closed waits for earlier pieces only */
        return 0;
    const uint64_t size = slr_exports_get(c, peer, i)->export.size;
    *kind = m->kind;
    return place.offset <= size && bytes <= size - place.offset ? m->base + place.offset : 0;
}

static const struct slr_exported_past *find_past(const struct slr_exports *exports, int peer, uint64_t generation)
{
    for (int i = 0; i < SLR_EXPORTS_PAST; i++)
        if (exports->past[peer][i].generation == generation)
            return &exports->past[peer][i];
    return NULL;
}

uint64_t slr_exported_heir(struct slr_comm *c, int peer, uint64_t generation, uint64_t *shift)
{
    const struct slr_exported_past *old = find_past(c->exports, peer, generation);
    for (unsigned back = 1; old && back <= SLR_EXPORTS_PAST; back++) { /* the latest first */
        const struct slr_exported_past *p =
            &c->exports->past[peer][(c->exports->next_past[peer] - back) % SLR_EXPORTS_PAST];
        if (p == old)
            return 0;
        *shift = old->base - p->base;
        if (p->generation && p->base <= old->base && *shift + old->size <= p->size)
            return p->generation;
    }
    return 0;
}

bool slr_exported_virtual(struct slr_comm *c, int peer, uint64_t *generation, struct slr_export *export)
{
    *generation = 0;
    slr_exports_hold(c);
    for (int i = 0; i < SLR_EXPORTS && !c->exports->closed && !*generation; i++) {
        const struct slr_exported_mapped *m = &c->exports->mapped[peer][i];
        if (!m->generation || m->closing || m->kind != SLR_MEMORY_VIRTUAL)
            continue;
        *generation = m->generation;
        *export = slr_exports_get(c, peer, i)->export;
    }
    c->exports->plain_only[peer] |= *generation == 0;
    slr_exports_release(c);
    return *generation != 0;
}

/* No call that begins later names the block, and `use.last` is the last that may have. */
void slr_exports_revoke(struct slr_comm *c, int i)
{
    struct slr_exported *e = slr_exports_get(c, c->rank, i);
    if (atomic_load(&e->state) != SLR_EXPORTED_OPEN)
        return;
    c->exports->own[i].revoked_ms = slr_now_ms();
    /* First the call, then the state: a peer that sees REVOKED reads the number that belongs to it. */
    atomic_store(&e->last_call, c->exports->own[i].use.last);
    atomic_store(&e->state, SLR_EXPORTED_REVOKED);
}

/* ---- blocks that are registered ---- */

bool slr_exports_register(struct slr_comm *c, uint64_t generation, bool awaited)
{
    slr_exports_hold(c);
    struct slr_exported_registered *h = slr_exports_registered(c, generation);
    for (int i = 0; i < SLR_EXPORTS && !h; i++)
        if (!c->exports->registered[i].count)
            h = &c->exports->registered[i];
    if (h && h->count++ == 0) {
        h->generation = generation;
        h->refused = false;
        h->on_use = true;
    }
    if (h && awaited)
        h->on_use = false;
    slr_exports_release(c);
    return h != NULL;
}

void slr_exports_unregister(struct slr_comm *c, uint64_t generation, bool revoke)
{
    slr_exports_hold(c);
    struct slr_exported_registered *h = slr_exports_registered(c, generation);
    int i = slr_exports_own(c, generation);
    if (h && --h->count == 0 && revoke && i >= 0)
        slr_exports_revoke(c, i);
    slr_exports_release(c);
}

/* A peer that need not be waited for. What it has said of an earlier block at that place does not count. */
static bool will_not_map(const struct slr_comm *c, int i, int peer, uint64_t generation)
{
    return c->shared.peer_dead[peer] || atomic_load(&c->shared.control->post[peer].state) >= SLR_RANK_FAILED ||
           atomic_load(slr_exports_ack(c, c->rank, peer, i)) == (generation | SLR_ACK_REFUSED);
}

bool slr_exports_acknowledged(struct slr_comm *c, uint64_t generation)
{
    bool acknowledged = true;
    /* Nothing will be mapped any more, or another block. */
    if (atomic_load(&c->error) != ncclSuccess || slr_reach_past() || !slr_block_lives(generation))
        return true;
    slr_exports_hold(c);
    const struct slr_exported_registered *h = slr_exports_registered(c, generation);
    int i = slr_exports_own(c, generation);
    if (h && !h->refused) {
        acknowledged = i >= 0 && atomic_load(&slr_exports_get(c, c->rank, i)->state) == SLR_EXPORTED_OPEN;
        for (int r = 0; r < c->nranks && acknowledged; r++)
            acknowledged = r == c->rank || atomic_load(slr_exports_ack(c, c->rank, r, i)) == generation ||
                           will_not_map(c, i, r, generation);
    }
    slr_exports_release(c);
    return acknowledged;
}

bool slr_exports_gone(struct slr_comm *c, uint64_t generation)
{
    slr_exports_hold(c);
    bool gone = slr_exports_own(c, generation) < 0 || slr_exports_registered(c, generation);
    slr_exports_release(c);
    return gone;
}

void slr_exports_suggest(struct slr_comm *c, uint64_t generation)
{
    slr_exports_hold(c);
    if (slr_exports_own(c, generation) < 0)
        slr_exports_note(c->exports, generation, (struct slr_exported_use){.last = c->exports->naming}, false);
    slr_exports_release(c);
}
