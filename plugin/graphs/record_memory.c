/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/graphs/graphs.h"
#include "plugin/graphs/recorded.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "cache/virtual.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/control.h"
#include "plugin/memory/exports.h"

/* ---- what stands in for the memory of peers ---- */

struct slr_stood_in {
    CUdeviceptr base;
    size_t bytes;
    int peer;
    bool imported;
    struct slr_import_key key; /* of an import */
    struct slr_stood_in *next;
};

/* The peer's device as this process counts it; -1: it is not visible here. */
static CUdevice device_of(const struct slr_comm *c, int peer)
{
    const CUuuid *wanted = &c->shared.control->post[peer].device_uuid;
    int n = 0;
    slr_real.cuDeviceGetCount(&n);
    for (CUdevice device = 0; device < n; device++) {
        CUuuid uuid;
        if (slr_real.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS && memcmp(&uuid, wanted, sizeof uuid) == 0)
            return device;
    }
    return -1;
}

static bool make(struct slr_stood_in *s, const struct slr_comm *c)
{
    const struct slr_virtual_devices there = {.on = device_of(c, s->peer), .count = 1, .device = &c->shared.device};
    s->bytes = there.on >= 0 ? slr_virtual_granularity(&there) : 0;
    return s->bytes && slr_virtual_make(&there, s->bytes, &s->base) == CUDA_SUCCESS;
}

/* One use more of what this rank has mapped already. */
static bool import(struct slr_stood_in *s, const struct slr_comm *c, uint64_t generation,
                   const struct slr_export *export)
{
    s->imported = true;
    s->bytes = export->size;
    s->key = (struct slr_import_key){
        .process = c->shared.control->post[s->peer].process, .generation = generation, .device = c->shared.device};
    return slr_import_open(&s->key, export, NULL, &s->base) == SLR_IMPORT_OK;
}

static struct slr_stood_in *add(struct slr_comm *c, int peer, bool wanted)
{
    struct slr_export export;
    uint64_t generation = 0;
    struct slr_stood_in *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->peer = peer;
    const bool made = wanted && make(s, c), mapped = !made && slr_exported_virtual(c, peer, &generation, &export);
    if (made || (mapped && (make(s, c) || import(s, c, generation, &export)))) {
        s->next = c->stood_in;
        c->stood_in = s;
        return s;
    }
    free(s);
    return NULL;
}

/* Some virtual memory of the peer's device to which this rank's device alone has access, as it has to what
 * it maps of the peer's. 0: there is none, or, unless `wanted`, the peer has no such memory that this rank
 * has mapped; then it maps none from now on (exports.h). Needs the context. */
static CUdeviceptr stand_in(struct slr_comm *c, int peer, bool wanted, size_t *bytes)
{
    struct slr_stood_in *s = c->stood_in;
    while (s && s->peer != peer)
        s = s->next;
    if (!s)
        s = add(c, peer, wanted);
    *bytes = s ? s->bytes : 0;
    return s ? s->base : 0;
}

void slr_stand_ins_close(struct slr_comm *c, bool with_context)
{
    for (struct slr_stood_in *s; (s = c->stood_in) != NULL; free(s)) {
        c->stood_in = s->next;
        if (with_context && s->imported)
            slr_import_close(&s->key);
        else if (with_context)
            slr_virtual_free(s->base, s->bytes);
    }
}

/* ---- the buffers ---- */

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
    if (!slr_exports_register(c, place.generation, true)) {
        slr_external_release(place.generation);
        return 0;
    }
    return place.generation;
}

static void find_stand_ins(struct slr_comm *c, const struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    /* Ranks of one process share it, and by kernels what they have of cuMemAlloc (cache/staging.h). */
    const bool wanted =
        slr_shared_any_in_one_process(&c->shared) || slr_export_virtual(g->block[0]) || slr_export_virtual(g->block[1]);
    *stand_ins = (struct slr_stand_ins){.bytes = c->lane->ring.slots[g->plan.slots].bytes};
    slr_lane_lock(c->lane);
    for (int r = 0; r < c->nranks; r++) {
        size_t bytes = 0;
        if (r == c->rank)
            continue;
        if (!slr_shared_same_process(&c->shared, r))
            stand_ins->at[SLR_MEMORY_PLAIN][r] = c->lane->ring.slots[g->plan.slots].at[r];
        else if (c->lane->ring.code)
            stand_ins->at[SLR_MEMORY_NEAR][r] = c->lane->ring.slots[g->plan.slots].at[r];
        stand_ins->at[SLR_MEMORY_VIRTUAL][r] = stand_in(c, r, wanted, &bytes);
        if (bytes && bytes < stand_ins->bytes)
            stand_ins->bytes = bytes;
    }
    slr_lane_unlock(c->lane);
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
