/* SPDX-License-Identifier: Apache-2.0 */
/* How gathers are captured, and what a launch does for each of them. */
#include "plugin/record/record.h"

#include <string.h>
#include "base/counters.h"
#include "base/settings.h"
#include "base/status.h"
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/graphs/recorded.h"
#include "plugin/memory/exports.h"
#include "plugin/pending/pending.h"
#include "plugin/timeline/timeline.h"
#include "plugin/transfer/transfer.h"

/* A copy that is cut, for the parts of a GEMM, is slower below that size (docs/measurements.md). */
#define LARGE_SHARD ((size_t)32 << 20)

/* ---- in the capture ---- */

/* Under the lane's lock, as what follows. */
static enum slr_status enqueue(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g)
{
    struct slr_route route[SLR_MAX_RANKS];
    struct slr_gather gather = {.send = (CUdeviceptr)(uintptr_t)g->send,
                                .recv = (CUdeviceptr)(uintptr_t)g->recv,
                                .stream = call->stream,
                                .route = route,
                                .wanted = g->shard < LARGE_SHARD ? SLR_WANTS_SHARDS : SLR_WANTS_CHUNKS,
                                .plan = g->plan};
    slr_record_routes(&lane->ring, route);
    lane->ring.recorded = &g->nodes;
    enum slr_status s = slr_ring_begin(&lane->ring, &gather);
    if (s == SLR_OK)
        s = slr_ring_finish(&lane->ring, &gather);
    lane->ring.recorded = NULL;
    if (s == SLR_OK)
        slr_pending_enqueued(lane, &gather);
    return s;
}

static enum slr_status enter(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                             bool first)
{
    slr_timeline_capture(lane, call, &g->plan, NULL, &g->stamps);
    /* Nothing of the capture before is waited for. */
    return slr_ring_entry(&lane->ring, call->stream, first);
}

static enum slr_status put(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                           bool first)
{
    (void)first;
    return enqueue(lane, call, g);
}

static enum slr_status prepare(struct slr_comm *c, struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    g->plan = slr_gather_plan(c, g->shard);
    return slr_record_memory_find(c, g, stand_ins);
}

/* ---- in a launch ---- */

static void count(const struct slr_comm *c, const struct slr_recorded_gather *g, const struct slr_route *route)
{
    slr_count_call(g->flow->kind, g->bytes, SLR_R_GRAPH);
    slr_gather_count_routes(c, route);
}

/* As any call: slr_gather_ring. */
static enum slr_status agree(struct slr_comm *c, const struct slr_recorded_gather *g, const struct slr_gather *gather,
                             struct slr_route *route)
{
    struct slr_call call = {.send = g->send,
                            .recv = g->recv,
                            .comm = c,
                            .shard = g->shard,
                            .passed_alone = atomic_load(&c->passed_alone),
                            .why = SLR_R_GRAPH};
    const struct slr_place send = slr_block_find((CUdeviceptr)(uintptr_t)g->send);
    const struct slr_place recv = slr_block_find((CUdeviceptr)(uintptr_t)g->recv);
    const bool by_engines = c->lane->ring.code && g->nodes.parts;
    call.number = ++c->substituted;
    slr_transfer_owner(&call, &send, by_engines, route);
    slr_ring_number(&c->lane->ring, gather);
    slr_expect_begin(&call, &send);
    slr_transfer_reader(&call, &recv, by_engines, route);
    slr_ring_expects(&c->lane->ring, gather);
    return slr_recorded_fits(&g->nodes, route, c->rank, c->nranks) ? SLR_OK : SLR_PEER;
}

/* As any call that is made now, by the graph's nodes. */
static enum slr_status replay(struct slr_comm *c, struct slr_recorded_gather *g, CUgraphExec exec, CUstream stream)
{
    struct slr_route route[SLR_MAX_RANKS];
    memset(route, 0, (size_t)c->nranks * sizeof route[0]);
    struct slr_gather gather = {.send = (CUdeviceptr)(uintptr_t)g->send,
                                .recv = (CUdeviceptr)(uintptr_t)g->recv,
                                .route = route,
                                .plan = g->plan};
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = agree(c, g, &gather, route);
    if (s == SLR_OK)
        s = slr_recorded_give(exec, &g->nodes, &c->lane->ring, &gather, atomic_load(&c->lane->ring.issued));
    if (s == SLR_OK)
        slr_timeline_replay(c, exec, &g->stamps, c->substituted, stream, route);
    slr_shared_work_end();
    slr_exports_end(c, c->substituted);
    if (s == SLR_OK)
        count(c, g, route);
    return s;
}

const struct slr_capture slr_capture_gather = {.prepare = prepare, .enter = enter, .put = put, .replay = replay};
