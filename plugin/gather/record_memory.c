/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/record_memory.h"

#include <time.h>
#include "base/clock.h"
#include "base/cu.h"
#include "cache/blocks.h"
#include "cache/external.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/gather/bounce.h"
#include "plugin/memory/exports.h"

#define PATIENCE_MS 1000
#define BOUNCE_ALIGN ((size_t)512)

bool slr_record_memory_mapped(struct slr_comm *c, const struct slr_recorded_gather *g)
{
    const struct slr_place at[2] = {slr_block_find((CUdeviceptr)(uintptr_t)g->send),
                                    slr_block_find((CUdeviceptr)(uintptr_t)g->recv)};
    const size_t bytes[2] = {g->shard, g->shard * (size_t)c->nranks};
    bool all = true;
    slr_exports_hold(c);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < c->nranks && all; r++)
            all = r == c->rank || slr_exported_place(c, &at[i], 0, bytes[i], r, c->substituted).generation;
    slr_exports_release(c);
    return all;
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

/* The peers' house-keeping threads map it or say that they can not, whatever their programs do
 * meanwhile. */
static bool await_settled(struct slr_comm *c, const struct slr_recorded_gather *g)
{
    const uint64_t end = slr_now_ms() + PATIENCE_MS;
    bool settled;
    while (!(settled = slr_exports_settled(c, g->block[0]) && slr_exports_settled(c, g->block[1])) &&
           slr_now_ms() < end)
        pause_a_moment();
    return settled;
}

void slr_record_memory_release(struct slr_comm *c, struct slr_recorded_gather *g)
{
    for (int i = 0; i < 2 && g->block[i]; i++) {
        slr_exports_unregister(c, g->block[i], false);
        slr_external_release(g->block[i]);
        g->block[i] = 0;
    }
}

static bool reserve_block(struct slr_comm *c, const void *p, size_t bytes, bool last, uint64_t *generation)
{
    struct slr_place place;
    if (!slr_external_hold((CUdeviceptr)(uintptr_t)p, bytes, &place))
        return false;
    if (!slr_exports_register(c, place.generation, last)) {
        slr_external_release(place.generation);
        return false;
    }
    *generation = place.generation;
    slr_exports_suggest(c, place.generation);
    return true;
}

/* Its buffers stay mapped by the peers; let go by recorded.c, or released. False: they can not
 * be. `last`: they are a bounce buffer. */
static bool reserve(struct slr_comm *c, struct slr_recorded_gather *g, bool last)
{
    if (!reserve_block(c, g->send, g->shard, last, &g->block[0]))
        return false;
    if (reserve_block(c, g->recv, g->shard * (size_t)c->nranks, last, &g->block[1])) {
        slr_oob_wake_self();
        const bool settled = await_settled(c, g);
        g->mapped = slr_record_memory_mapped(c, g);
        /* Peers that have left never map it, nor will it be replayed. A bounce buffer may still come. */
        if ((settled || last) && !slr_exports_refused(c, g->block[0]) && !slr_exports_refused(c, g->block[1]))
            return true;
    }
    slr_record_memory_release(c, g);
    return false;
}

static bool comes_soon(struct slr_comm *c, const void *p)
{
    return slr_exports_soon(c, slr_block_find((CUdeviceptr)(uintptr_t)p).generation);
}

bool slr_record_memory_await(struct slr_comm *c, const struct slr_recorded_gather *g, bool wanted)
{
    struct slr_recorded_gather held = *g;
    bool can = slr_record_memory_mapped(c, g) || (!wanted && !(comes_soon(c, g->send) && comes_soon(c, g->recv)));
    if (can || slr_shared_enter(&c->shared) != SLR_OK)
        return can;
    if (reserve_block(c, g->send, g->shard, false, &held.block[0]) &&
        reserve_block(c, g->recv, g->shard * (size_t)c->nranks, false, &held.block[1])) {
        slr_oob_wake_self();
        /* On their way after all that time they come for a later call. */
        can = !await_settled(c, &held) || slr_record_memory_mapped(c, g);
    }
    slr_record_memory_release(c, &held);
    slr_shared_leave();
    return can;
}

static bool reserve_bounce(struct slr_comm *c, struct slr_recorded_gather *g)
{
    const size_t shard = (g->shard + BOUNCE_ALIGN - 1) / BOUNCE_ALIGN * BOUNCE_ALIGN;
    slr_comm_lock(c);
    const CUdeviceptr base = slr_bounce_take(c, shard + g->shard * (size_t)c->nranks);
    slr_comm_unlock(c);
    g->send = (const void *)(uintptr_t)base;
    g->recv = (void *)(uintptr_t)(base + shard);
    return base && reserve(c, g, true);
}

static void find_stand_ins(struct slr_comm *c, const struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    const bool own =
        slr_bounce_virtual(c) || slr_exports_virtual(c, g->block[0]) || slr_exports_virtual(c, g->block[1]);
    *stand_ins = (struct slr_stand_ins){.bytes = c->ring.slot};
    slr_comm_lock(c);
    for (int r = 0; r < c->nranks; r++) {
        size_t bytes = 0;
        if (r == c->rank)
            continue;
        if (!slr_shared_same_process(&c->shared, r))
            stand_ins->at[SLR_MEMORY_PLAIN][r] = c->ring.slots[r];
        stand_ins->at[SLR_MEMORY_VIRTUAL][r] = slr_bounce_stand_in(c, r, own, &bytes);
        if (bytes && bytes < stand_ins->bytes)
            stand_ins->bytes = bytes;
    }
    slr_comm_unlock(c);
}

/* The program's buffers, or, where the peers can not map them, a bounce buffer. */
enum slr_status slr_record_memory_find(struct slr_comm *c, struct slr_recorded_gather *g,
                                       struct slr_stand_ins *stand_ins)
{
    SLR_TRY(slr_shared_enter(&c->shared));
    const bool found = reserve(c, g, false) || reserve_bounce(c, g);
    if (found)
        find_stand_ins(c, g, stand_ins);
    slr_shared_leave();
    return found ? SLR_OK : SLR_NOMEM;
}
