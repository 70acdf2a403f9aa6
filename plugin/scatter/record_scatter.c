/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"
#include "kernels/timing.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/produce/product_parts.h"
#include "plugin/scatter/scatter.h"

#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "plugin/comm/group_kept.h"
#include "plugin/graphs/recorded.h"
#include "plugin/produce/product.h"
#include "plugin/produce/produce.h"
#include "plugin/record/record.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"
#include "plugin/abi/nccl_common.h"

/* In a group it has been entered. */
static enum slr_status go(struct slr_ring *ring, const struct slr_call *call, const struct slr_product *p, bool grouped,
                          bool first, struct slr_scatter *s)
{
    if (p)
        SLR_TRY(slr_ring_enter_behind(ring, p->before, first));
    else if (!grouped)
        SLR_TRY(slr_ring_entry(ring, call->stream, first));
    if (p)
        SLR_TRY(slr_scatter_mark_entry(ring, call, s));
    SLR_TRY(slr_ring_scatter(ring, s));
    SLR_TRY(slr_ring_join(ring, call->stream));
    slr_timing_did(ring->now.timing, SLR_TRACK_APP, call->stream, SLR_SPAN_WAIT, -1, -1, 0);
    return SLR_OK;
}

static enum slr_status run(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                           struct slr_product *p, bool first)
{
    struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    struct slr_scatter s;
    slr_scatter_describe(call, p, plain, &s);
    slr_timeline_capture(lane, call, &g->plan, p ? p->timing : NULL, &g->stamps);
    if (p)
        p->timing = NULL;
    const enum slr_status status = go(&lane->ring, call, p, g->grouped, first, &s);
    slr_timeline_captured_scatter(lane, s.parts, p != NULL);
    return status;
}

/* What the replays do: one line for each shape. */
static void note(const struct slr_call *call, const struct slr_recorded_gather *g, const struct slr_product *p)
{
    const struct slr_comm *c = call->comm;
    const struct slr_collective *kind = call->flow->kind;
    const unsigned parts = g->fused ? p->parts : 0;
    if (slr_log_enabled(SLR_LOG_INFO) &&
        slr_log_first(slr_mix(slr_mix(g->shard, parts), slr_comm_id(c) ^ 6 ^ (uint64_t)kind->id << 3)))
        slr_log(SLR_LOG_INFO, "scatter_captured", "op=%s comm=%s crank=%d shard=%zu parts=%u", kind->op, c->name,
                c->rank, g->shard, parts);
}

/* The entry of one that runs alone stands behind its product, which `put` looks for. */
static enum slr_status enter(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                             bool first)
{
    return g->grouped ? slr_ring_entry(&lane->ring, call->stream, first) : SLR_OK;
}

static enum slr_status put(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                           bool first)
{
    struct slr_comm *c = call->comm;
    struct slr_product *p =
        g->grouped ? NULL : slr_captured_take(c, (CUdeviceptr)(uintptr_t)call->send, call->bytes, call->stream);
    g->fused = p && p->elem == slr_type_bytes(call->type); /* parts end between elements of the GEMM's */
    if (g->fused)
        slr_produce_right(p);
    lane->ring.recorded = &g->nodes;
    const enum slr_status s = run(lane, call, g, g->fused ? p : NULL, first);
    lane->ring.recorded = NULL;
    note(call, g, p);
    if (p)
        slr_captured_give_back(c, p);
    return s;
}

/* It has none that peers have to map. */
static enum slr_status prepare(struct slr_comm *c, struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    (void)stand_ins;
    g->plan = slr_scatter_plan(g->shard);
    g->plan.slots = slr_scatter_slots(c, g->shard);
    return SLR_OK;
}

static enum slr_reason can(const struct slr_call *call)
{
    const enum slr_reason why = slr_scatter_can(call);
    return why == SLR_R_RING && !slr_scatter_fits(call) ? SLR_R_SCATTER_ROOM : why;
}

static bool chosen(struct slr_call *call)
{
    if (!slr_in_group()) /* at whose end it sends what no GEMM has left for it */
        slr_produce_learn(call);
    return slr_get(call->flow->kind->setting) != SLR_SCATTERS_AUTO ||
           slr_trials_captured(call->comm, call->shard, call->flow->kind);
}

static void count(const struct slr_recorded_gather *g)
{
    slr_count_call(g->flow->kind, g->bytes, SLR_R_GRAPH);
    atomic_fetch_add(&slr_counters.scatters_fused, g->fused);
    atomic_fetch_add(&slr_counters.scatters_produced, g->fused);
}

/* There is nothing to be agreed on. */
static enum slr_status replay(struct slr_comm *c, struct slr_recorded_gather *g, CUgraphExec exec, CUstream stream)
{
    const struct slr_gather scatter = {.plan = g->plan};
    SLR_TRY(slr_shared_work_begin(&c->shared));
    ++c->substituted;
    slr_ring_scatter_number(&c->lane->ring, &g->plan, g->flow->kind->gets_all);
    enum slr_status s =
        slr_recorded_give(exec, &g->nodes, &c->lane->ring, &scatter, atomic_load(&c->lane->ring.issued));
    if (s == SLR_OK)
        slr_timeline_replay(c, exec, &g->stamps, c->substituted, stream, NULL);
    slr_shared_work_end();
    if (s == SLR_OK)
        count(g);
    return s;
}

const struct slr_capture slr_capture_scatter = {
    .chosen = chosen, .can = can, .prepare = prepare, .enter = enter, .put = put, .replay = replay};
