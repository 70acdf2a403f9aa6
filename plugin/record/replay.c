/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/record/record.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/graphs/recorded.h"
#include "plugin/memory/exports.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/stream.h"
#include "plugin/graphs/graphs.h"
#include "plugin/passed/passed_alone.h"

struct slr_replay {
    struct slr_graph_page *graph;
    CUgraphExec exec;
    CUstream stream; /* as slr_stream_name() calls it */
    CUcontext ctx;   /* of that; NULL: it can not be told */
    unsigned comms, locked;
    struct slr_comm *comm[]; /* in the order of their addresses */
};

static CUresult refused(const struct slr_graph_page *graph, const struct slr_comm *c, const char *why)
{
    slr_log(SLR_LOG_ERROR, "replay_refused", "comm=%s crank=%d gathers=%u msg=%s", c ? c->name : "?", c ? c->rank : -1,
            graph->gathers, why);
    return CUDA_ERROR_ILLEGAL_STATE;
}

/* ---- its communicators ---- */

/* NULL: it is not among them. */
static struct slr_comm *comm_of(const struct slr_replay *replay, const struct slr_recorded_gather *g)
{
    for (unsigned i = 0; i < replay->comms; i++)
        if (replay->comm[i]->rank == g->rank && memcmp(&replay->comm[i]->id, &g->comm, sizeof g->comm) == 0)
            return replay->comm[i];
    return NULL;
}

static void insert(struct slr_replay *replay, struct slr_comm *c)
{
    unsigned at = replay->comms++;
    for (; at > 0 && replay->comm[at - 1] > c; at--)
        replay->comm[at] = replay->comm[at - 1];
    replay->comm[at] = c;
}

/* NULL: there is no memory. Communicators that have ended are left out. */
static struct slr_replay *prepare(struct slr_graph_page *graph, CUgraphExec exec, CUstream stream)
{
    struct slr_replay *replay = calloc(1, sizeof *replay + graph->gathers * sizeof replay->comm[0]);
    if (!replay)
        return NULL;
    replay->graph = graph;
    replay->exec = exec;
    replay->stream = slr_stream_name(stream, false);
    replay->ctx = slr_stream_context(replay->stream);
    for (unsigned i = 0; i < graph->gathers; i++) {
        struct slr_comm *c =
            comm_of(replay, &graph->gather[i]) ? NULL : slr_comm_find_id(&graph->gather[i].comm, graph->gather[i].rank);
        if (c)
            insert(replay, c);
    }
    return replay;
}

/* What was to be measured has been launched, or not. */
static void measured(struct slr_replay *replay, bool launched)
{
    for (unsigned i = 0; i < replay->graph->gathers; i++) {
        struct slr_recorded_gather *g = &replay->graph->gather[i];
        struct slr_comm *c = g->stamps.now ? comm_of(replay, g) : NULL;
        if (c && slr_context_enter(c->shared.ctx) == SLR_OK) {
            slr_timeline_replayed(c, replay->exec, &g->stamps, launched);
            slr_shared_leave();
        }
    }
}

static void finish(struct slr_replay *replay, bool launched)
{
    measured(replay, launched);
    for (unsigned i = 0; i < replay->comms; i++) {
        if (i < replay->locked) {
            slr_exports_launching(replay->comm[i], false);
            slr_lane_unlock(replay->comm[i]->lane);
        }
        slr_comm_put(replay->comm[i]);
    }
    slr_recorded_put(replay->graph);
    free(replay);
}

/* In one order in all threads; whoever holds one communicator's lock takes no other's. */
static void lock_all(struct slr_replay *replay)
{
    for (; replay->locked < replay->comms; replay->locked++) {
        slr_lane_lock(replay->comm[replay->locked]->lane);
        slr_exports_launching(replay->comm[replay->locked], true);
    }
}

/* ---- before the launch ---- */

/* The graph is for other devices, too, and is launched on a stream of one of these. */
static bool is_away(const struct slr_replay *replay, const struct slr_comm *c)
{
    return replay->ctx && replay->ctx != c->shared.ctx;
}

/* The launch stands behind the communicator's operations until now. */
static enum slr_status order(const struct slr_replay *replay, struct slr_comm *c)
{
    enum slr_status s;
    slr_pending_join(c->lane, SLR_R_JOIN_NEXT_GATHER, "cuGraphLaunch");
    SLR_TRY(slr_shared_work_begin(&c->shared));
    if (is_away(replay, c)) {
        s = slr_order_before_away(c->lane, replay->stream, replay->ctx, true);
    } else {
        s = slr_order_before_gather(c->lane, replay->stream);
        if (s == SLR_OK)
            s = slr_ring_await_slots(&c->lane->ring, replay->stream);
    }
    slr_shared_work_end();
    return s;
}

static CUresult begin(struct slr_replay *replay)
{
    struct slr_graph_page *graph = replay->graph;
    for (unsigned i = 0; i < replay->comms; i++)
        if (slr_comm_answer(replay->comm[i]) != ncclSuccess)
            return refused(graph, replay->comm[i], "the communicator of a captured gather has failed");
    for (unsigned i = 0; i < graph->gathers; i++)
        if (!comm_of(replay, &graph->gather[i]))
            return refused(graph, NULL, "the communicator of a captured gather has ended");
    lock_all(replay);
    for (unsigned i = 0; i < replay->comms; i++)
        if (order(replay, replay->comm[i]) != SLR_OK)
            return refused(graph, replay->comm[i], "the launch could not be ordered behind the communicator's calls");
    for (unsigned i = 0; i < graph->gathers; i++) {
        struct slr_recorded_gather *g = &graph->gather[i];
        struct slr_comm *c = comm_of(replay, g);
        enum slr_status s = g->flow->capture->replay(c, g, replay->exec, replay->stream);
        if (s == SLR_OK)
            continue;
        for (unsigned j = 0; j <= i; j++) /* their peers have been told of calls that do not come */
            slr_comm_fail(comm_of(replay, &graph->gather[j]), s, -1,
                          "a graph could not be given what a captured gather needs");
        return refused(graph, c, "a captured gather can not run");
    }
    return CUDA_SUCCESS;
}

bool slr_replay_begin(CUgraphExec exec, CUstream stream, struct slr_replay **replay, CUresult *r)
{
    *replay = NULL;
    if (!slr_graphs_any())
        return true;
    struct slr_graph_page *graph = slr_recorded_find(exec);
    if (!graph)
        return true;
    slr_guard++;
    *r = CUDA_ERROR_OUT_OF_MEMORY;
    if (graph->lost) {
        *r = refused(graph, NULL, "the nodes of captured gathers could not be found in a copy of their graph");
        slr_recorded_put(graph);
    } else if ((*replay = prepare(graph, exec, stream)) == NULL) {
        slr_recorded_put(graph);
    } else if ((*r = begin(*replay)) != CUDA_SUCCESS) {
        finish(*replay, false);
        *replay = NULL;
    }
    slr_guard--;
    return *r == CUDA_SUCCESS;
}

/* ---- behind the launch ---- */

static enum slr_status behind_here(struct slr_comm *c, CUstream stream)
{
    SLR_TRY(SLR_CU(cuEventRecord, c->lane->ring.entry, stream));
    SLR_TRY(slr_ring_launched(&c->lane->ring, c->lane->ring.entry));
    return slr_order_after_gather(c->lane, stream);
}

static enum slr_status behind(const struct slr_replay *replay, struct slr_comm *c)
{
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = is_away(replay, c) ? slr_order_after_away(c->lane, replay->stream, replay->ctx, true)
                                           : behind_here(c, replay->stream);
    slr_shared_work_end();
    return s;
}

void slr_replay_end(struct slr_replay *replay, CUresult r)
{
    if (!replay)
        return;
    slr_guard++;
    for (unsigned i = 0; i < replay->comms; i++)
        if (r != CUDA_SUCCESS)
            slr_comm_fail(replay->comm[i], SLR_CUDA, -1, "the launch of a graph with captured gathers has failed");
        else if (behind(replay, replay->comm[i]) != SLR_OK)
            slr_comm_fail(replay->comm[i], SLR_CUDA, -1, "what comes later could not be ordered behind a graph");
    finish(replay, r == CUDA_SUCCESS);
    slr_guard--;
}

/* Orders a launch on a stream of another device, as a graph for several has. False: the stream is of this one. */
static bool order_away(struct slr_comm *c, CUstream stream, bool before)
{
    enum slr_status s = SLR_OK;
    slr_guard++;
    const CUcontext ctx = slr_stream_context(stream);
    const bool away = ctx && c->shared.ctx && ctx != c->shared.ctx;
    if (away && c->pass == SLR_R_RING && atomic_load(&c->error) == ncclSuccess) {
        slr_lane_lock(c->lane);
        s = slr_shared_work_begin(&c->shared);
        if (s == SLR_OK) {
            s = (before ? slr_order_before_away : slr_order_after_away)(c->lane, stream, ctx, false);
            slr_shared_work_end();
        }
        slr_lane_unlock(c->lane);
    }
    slr_guard--;
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the streams of a communicator could not be ordered");
    return away;
}

void slr_graph_enters(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(exec, &holds)) != NULL; slr_comm_put(c))
        if (!order_away(c, slr_stream_name(stream, false), true))
            slr_order_before_launch(c, slr_stream_name(stream, false));
}

void slr_graph_runs(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(exec, &holds)) != NULL; slr_comm_put(c)) {
        if (holds.gathers)
            slr_alone_note(c, SLR_R_CAPTURE, holds.gathers);
        if (holds.uncounted)
            slr_alone_uncounted(c);
        if (!order_away(c, slr_stream_name(stream, false), false))
            slr_order_after_nccl(c, slr_stream_name(stream, false));
    }
}
