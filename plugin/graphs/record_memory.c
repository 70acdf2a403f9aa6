/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/record_memory.h"

#include "base/cu.h"
#include "cache/blocks.h"
#include "cache/external.h"
#include "cache/handles.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/graphs/stand_in.h"
#include "plugin/memory/exports.h"

void slr_record_memory_release(struct slr_comm *c, struct slr_recorded_gather *g)
{
    for (int i = 0; i < 2; i++)
        if (g->block[i]) {
            slr_exports_unregister(c, g->block[i], false);
            slr_external_release(g->block[i]);
            g->block[i] = 0;
        }
}

/* The block's generation; 0: peers will not map it. */
static uint64_t reserve(struct slr_comm *c, const void *p, size_t bytes)
{
    struct slr_place place;
    if (!slr_external_hold((CUdeviceptr)(uintptr_t)p, bytes, &place))
        return 0;
    if (!slr_exports_register(c, place.generation)) {
        slr_external_release(place.generation);
        return 0;
    }
    return place.generation;
}

/* Such ranks can only share virtual memory (cache/staging.h). */
static bool in_one_process(const struct slr_comm *c)
{
    const struct slr_post *post = c->shared.control->post;
    for (int r = 0; r < c->nranks; r++)
        for (int q = 0; q < r; q++)
            if (post[q].pid == post[r].pid)
                return true;
    return false;
}

static void find_stand_ins(struct slr_comm *c, const struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    const bool wanted = in_one_process(c) || slr_export_virtual(g->block[0]) || slr_export_virtual(g->block[1]);
    *stand_ins = (struct slr_stand_ins){.bytes = c->ring.slot};
    slr_comm_lock(c);
    for (int r = 0; r < c->nranks; r++) {
        size_t bytes = 0;
        if (r == c->rank)
            continue;
        if (!slr_shared_same_process(&c->shared, r))
            stand_ins->at[SLR_MEMORY_PLAIN][r] = c->ring.slots[r];
        stand_ins->at[SLR_MEMORY_VIRTUAL][r] = slr_stand_in(c, r, wanted, &bytes);
        if (bytes && bytes < stand_ins->bytes)
            stand_ins->bytes = bytes;
    }
    slr_comm_unlock(c);
}

enum slr_status slr_record_memory_find(struct slr_comm *c, struct slr_recorded_gather *g,
                                       struct slr_stand_ins *stand_ins)
{
    SLR_TRY(slr_shared_enter(&c->shared));
    g->block[0] = reserve(c, g->send, g->shard);
    g->block[1] = reserve(c, g->recv, g->shard * (size_t)c->nranks);
    slr_oob_wake_self();
    find_stand_ins(c, g, stand_ins);
    slr_shared_leave();
    return SLR_OK;
}
