/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are captured into CUDA graphs, and their replays (timeline.h). */
#include <stdlib.h>
#include <string.h>
#include "base/settings.h"
#include "cache/blocks.h"
#include "kernels/ring_record.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/timeline/timeline_impl.h"

/* ---- captures ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these */
static struct {
    CUevent event;
    uint32_t resets; /* of the device, when it was made */
} stand_in[SLR_BLOCK_DEVICES];

/* NULL: there is none of this context. `made`: to be that, if so. */
static CUevent keep_stand_in(int device, CUevent made)
{
    const uint32_t resets = slr_device_resets(device);
    pthread_mutex_lock(&lock);
    if (stand_in[device].resets != resets)
        stand_in[device].event = NULL; /* it went with its context */
    if (!stand_in[device].event)
        stand_in[device].event = made;
    stand_in[device].resets = resets;
    CUevent event = stand_in[device].event;
    pthread_mutex_unlock(&lock);
    return event;
}

/* The event that stamps of captured gathers record. It stays as long as the context does: the
 * program's graphs name it, in copies and copies of those. NULL: it could not be made. */
static CUevent stand_in_of(int device)
{
    CUevent event = NULL, made;
    if (device < 0 || device >= SLR_BLOCK_DEVICES || (event = keep_stand_in(device, NULL)))
        return event;
    /* As those that take its place, though nobody asks for its time. */
    if (slr_real.cuEventCreate(&made, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    if ((event = keep_stand_in(device, made)) != made)
        slr_real.cuEventDestroy(made);
    return event;
}

/* With one user; NULL: nothing is measured. */
static struct slr_timed_capture *new_capture(int device, enum slr_timed_kind kind)
{
    CUevent event = slr_get(SLR_S_TRACE) && slr_timing_graphs() ? stand_in_of(device) : NULL;
    struct slr_timed_capture *capture = event ? calloc(1, sizeof *capture) : NULL;
    if (!capture)
        return NULL;
    capture->users = 1;
    capture->timed.kind = kind;
    capture->timed.timing.stand_in = event;
    slr_timing_begin(&capture->timed.timing);
    return capture;
}

/* The lane's user is its first one. */
static void open_capture(struct slr_timed_capture *capture, struct slr_lane *lane, const struct slr_call *call,
                         const struct slr_plan *plan, struct slr_timed_nodes *nodes)
{
    struct slr_timed *m = &capture->timed;
    m->ended = SLR_R_RING;
    m->pieces = plan->pieces;
    m->chunks = plan->chunks;
    slr_timeline_describe(m, call);
    m->reason = SLR_R_GRAPH;
    atomic_fetch_add(&capture->users, 1);
    nodes->of = capture;
    lane->ring.now.timing = &m->timing;
    slr_timing_mark(&m->timing, SLR_TRACK_APP, call->stream);
}

struct slr_timing *slr_timeline_capture_expect(struct slr_comm *c, CUstream stream)
{
    struct slr_timed_capture *capture = new_capture(c->shared.device, SLR_TIMED_SCATTER);
    if (!capture)
        return NULL;
    slr_timing_mark(&capture->timed.timing, SLR_TRACK_APP, stream);
    return &capture->timed.timing;
}

void slr_timeline_capture_drop(struct slr_timing *gemm)
{
    if (gemm) /* the first member of the first one */
        slr_timeline_leave((struct slr_timed_capture *)gemm);
}

void slr_timeline_capture(struct slr_lane *lane, const struct slr_call *call, const struct slr_plan *plan,
                          struct slr_timing *gemm, struct slr_timed_nodes *nodes)
{
    slr_timeline_close(lane); /* of a capture that was given up */
    const enum slr_timed_kind kind = call->flow->kind->produced ? SLR_TIMED_SCATTER : SLR_TIMED_RING;
    struct slr_timed_capture *capture =
        gemm ? (struct slr_timed_capture *)gemm : new_capture(lane->comm->shared.device, kind);
    if (capture)
        open_capture(capture, lane, call, plan, nodes);
}

void slr_timeline_captured_scatter(struct slr_lane *lane, unsigned parts, bool fused)
{
    struct slr_timed *m = (struct slr_timed *)lane->ring.now.timing;
    if (!m)
        return;
    m->chunks = parts;
    m->ended = fused ? SLR_R_FUSED : SLR_R_RING;
    slr_timeline_close(lane);
}

/* ---- graphs ---- */

static const struct slr_timing *timing_of(const struct slr_timed_nodes *nodes)
{
    return &nodes->of->timed.timing;
}

/* NULL: not before it is closed. */
static const CUgraphNode *node_of(const struct slr_timed_nodes *nodes)
{
    if (!nodes->of || !atomic_load(&nodes->of->closed) || timing_of(nodes)->broken)
        return NULL;
    return nodes->node ? nodes->node : timing_of(nodes)->node;
}

static bool take(struct slr_timed_nodes *to, struct slr_timed_capture *of, const CUgraphNode *node, CUgraph graph)
{
    const unsigned n = of->timed.timing.stamps;
    to->node = malloc((n ? n : 1) * sizeof *to->node);
    for (unsigned i = 0; to->node && i < n; i++) {
        to->node[i] = node[i];
        if (graph && slr_real.cuGraphNodeFindInClone(&to->node[i], node[i], graph) != CUDA_SUCCESS) {
            free(to->node);
            to->node = NULL;
        }
    }
    if (!to->node)
        return false;
    atomic_fetch_add(&of->users, 1);
    to->of = of;
    return true;
}

void slr_timed_nodes_copy(struct slr_timed_nodes *to, const struct slr_timed_nodes *from, CUgraph graph)
{
    const CUgraphNode *node = node_of(from);
    *to = (struct slr_timed_nodes){0};
    if (node)
        take(to, from->of, node, graph);
}

void slr_timed_nodes_update(struct slr_timed_nodes *to, const struct slr_timed_nodes *values,
                            const struct slr_timed_nodes *own)
{
    const CUgraphNode *node = node_of(own);
    *to = (struct slr_timed_nodes){0};
    if (node && node_of(values) && timing_of(values)->stamps == timing_of(own)->stamps)
        take(to, values->of, node, NULL);
}

void slr_timed_nodes_free(struct slr_timed_nodes *nodes)
{
    if (nodes->of)
        slr_timeline_leave(nodes->of);
    free(nodes->node);
    *nodes = (struct slr_timed_nodes){0};
}

/* ---- replays ---- */

/* What was captured, but for what only this replay knows, and for times. */
static void fill(struct slr_timed *m, const struct slr_timed *captured, const struct slr_comm *c,
                 const struct slr_route *route)
{
    const struct slr_timed was = *m;
    *m = *captured;
    m->timing = was.timing;
    m->counted = was.counted;
    m->number = was.number;
    if (route)
        slr_timeline_deliveries(m, c, route);
    for (unsigned i = 0; i < captured->timing.spans; i++)
        if (!route || slr_recorded_runs(&captured->timing.span[i], route, c->rank, c->nranks))
            slr_timing_add(&m->timing, &captured->timing.span[i]);
}

void slr_timeline_replay(struct slr_comm *c, CUgraphExec exec, struct slr_timed_nodes *nodes, uint64_t number,
                         CUstream stream, const struct slr_route *route)
{
    if (!nodes->of || !slr_timeline_turn(number) || !node_of(nodes))
        return;
    struct slr_timeline *timeline = slr_timeline_of(c);
    struct slr_timed *m = timeline ? slr_timeline_take(timeline, SLR_TIMED_RING, number) : NULL;
    if (!m)
        return;
    fill(m, &nodes->of->timed, c, route);
    m->stream = stream;
    (void)slr_timing_give(exec, node_of(nodes), timing_of(nodes), &m->timing);
    nodes->now = m;
}

void slr_timeline_replayed(struct slr_comm *c, CUgraphExec exec, struct slr_timed_nodes *nodes, bool launched)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    struct slr_timed *m = nodes->now;
    nodes->now = NULL;
    const bool back =
        slr_timing_launched(exec, node_of(nodes), timing_of(nodes), &m->timing, launched ? c->lane->ring.tail : NULL);
    if (launched)
        slr_timeline_hand_in(timeline, m);
    else
        slr_timeline_give_back(timeline, m);
    if (!back)
        slr_timed_nodes_free(nodes);
}
