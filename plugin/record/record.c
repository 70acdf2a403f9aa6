/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on their way into captures. */
#include "plugin/record/record_impl.h"

#include "base/log.h"
#include "base/real.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/graphs/graphs.h"
#include "plugin/graphs/recorded.h"
#include "plugin/pending/pending.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"

static const char *function_of(const struct slr_recording *x)
{
    return x->call.flow->kind->function;
}

static enum slr_status take_steps(struct slr_recording *x, unsigned steps)
{
    const struct slr_capture *what = x->call.flow->capture;
    const char *name = function_of(x);
    struct slr_lane *lane = x->lane;
    enum slr_status s = SLR_OK;
    if (steps & SLR_RECORD_ENTER) {
        x->first = slr_capture_lane_enter(lane);
        if (what->enter)
            s = what->enter(lane, &x->call, &x->g, x->first);
    }
    if (s == SLR_OK && steps & SLR_RECORD_PUT)
        s = what->put(lane, &x->call, &x->g, x->first);
    if (s == SLR_OK && steps & SLR_RECORD_LEAVE && what->leave)
        s = what->leave(lane, &x->call, &x->g);
    /* What another thread puts on its own default stream, which has the same name, is not in this capture. */
    if (s == SLR_OK && steps & SLR_RECORD_LEAVE && x->call.stream == CU_STREAM_PER_THREAD)
        slr_pending_join(lane, SLR_R_JOIN_PER_THREAD, name);
    if (s == SLR_OK && steps & SLR_RECORD_LEAVE && slr_reach_doubtful())
        slr_pending_join(lane, SLR_R_JOIN_BYPASSED, name);
    return s;
}

enum slr_status slr_recording_steps(struct slr_recording *x, unsigned steps)
{
    struct slr_lane *lane = x->lane;
    if (steps & SLR_RECORD_ENTER)
        slr_reach_look();
    /* What this call sends may be what an earlier one on the stream is still gathering. */
    if (steps & SLR_RECORD_ENTER)
        slr_pending_join_stream(x->call.stream, SLR_R_JOIN_NEXT_GATHER, function_of(x));
    slr_lane_lock(lane);
    if (steps & SLR_RECORD_ENTER)
        slr_pending_join(lane, SLR_R_JOIN_NEXT_GATHER, function_of(x));
    enum slr_status s = slr_shared_work_begin(&lane->comm->shared);
    if (s == SLR_OK) {
        s = take_steps(x, steps);
        if (s == SLR_OK)
            slr_capture_lane_drawn(lane);
        else
            slr_timeline_close(lane);
        slr_shared_work_end();
    }
    slr_lane_unlock(lane);
    return s;
}

enum slr_status slr_recording_open(struct slr_recording *x, const struct slr_call *call, bool grouped)
{
    struct slr_comm *c = call->comm;
    *x = (struct slr_recording){.call = *call,
                                .g = {.comm = c->id,
                                      .rank = c->rank,
                                      .send = call->send,
                                      .recv = call->recv,
                                      .shard = call->shard,
                                      .bytes = call->bytes,
                                      .flow = call->flow,
                                      .grouped = grouped}};
    x->capture = slr_graph_capture(call->stream, &x->graph);
    if (!x->capture)
        return SLR_ABSENT;
    SLR_TRY(call->flow->capture->prepare(c, &x->g, &x->stand_ins));
    x->prepared = true;
    x->g.nodes.stand_ins = &x->stand_ins;
    x->lane = slr_capture_lane_of(c, x->capture, x->g.plan.slots);
    return x->lane ? SLR_OK : SLR_NOMEM;
}

ncclResult_t slr_recording_close(struct slr_recording *x, enum slr_status s)
{
    struct slr_comm *c = x->call.comm;
    if (s == SLR_OK && x->g.nodes.failed)
        s = SLR_CUDA;
    x->g.nodes.stand_ins = NULL;
    if (s == SLR_OK && !slr_recorded_add(x->graph, &x->g))
        s = SLR_NOMEM;
    if (s == SLR_OK)
        return ncclSuccess;
    if (x->prepared) {
        slr_recorded_drop(&x->g);
        slr_record_memory_release(c, &x->g);
    }
    slr_connect_end(&c, 1);
    slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank, slr_status_name(s),
            "a gather could not be captured: the graph is of no use; SLIPRING_GRAPHS=off leaves it to NCCL");
    return s == SLR_CUDA ? ncclUnhandledCudaError : ncclSystemError;
}

/* By facts that are equal on ranks that do the same. */
static bool is_for_the_ring(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    CUgraph graph = NULL;
    const unsigned long long capture = slr_graph_capture(call->stream, &graph);
    if (!slr_graphs_all_can(c))
        slr_graphs_missed();
    /* The ring's events are of another context than the stream. */
    if (slr_stream_away(call->stream, c->shared.ctx))
        return false;
    return slr_graphs_take(c, call->shard) && atomic_load(&c->error) == ncclSuccess && capture && graph &&
           !slr_capture_is_given(capture) &&
           slr_recorded_count(graph, c) + slr_group_kept_captured(c) < SLR_RECORD_MOST;
}

/* What a rank can not do here alone fails its capture: the others have recorded the call. */
static ncclResult_t record_now(const struct slr_call *call)
{
    struct slr_recording x;
    enum slr_status s = slr_recording_open(&x, call, false);
    if (s == SLR_OK)
        s = slr_recording_steps(&x, SLR_RECORD_ENTER | SLR_RECORD_PUT | SLR_RECORD_LEAVE);
    return slr_recording_close(&x, s);
}

/* At the group's end: record_group.c. */
static ncclResult_t keep(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (slr_group_keep_captured(call))
        return ncclSuccess;
    slr_connect_end(&c, 1);
    return ncclSystemError;
}

/* When the ranks are connected. */
static enum slr_reason may_be(const struct slr_call *call)
{
    const struct slr_capture *what = call->flow->capture;
    if (!slr_graphs_all_can(call->comm)) { /* a trial has failed meanwhile */
        slr_graphs_missed();
        return SLR_R_CAPTURE;
    }
    return what->can ? what->can(call) : SLR_R_RING;
}

static bool is_chosen(struct slr_call *call)
{
    const struct slr_capture *what = call->flow->capture;
    return what->chosen ? what->chosen(call) : slr_trials_captured(call->comm, call->shard, call->flow->kind);
}

enum slr_reason slr_record_call(struct slr_call *call, ncclResult_t *r)
{
    struct slr_comm *c = call->comm;
    if (!is_chosen(call) || !is_for_the_ring(call))
        return SLR_R_CAPTURE;
    enum slr_reason connected = slr_connect(c, slr_call_slots(call)); /* until recorded.c lets it go, or: */
    if (connected == SLR_R_RING)
        connected = may_be(call);
    if (connected != SLR_R_RING) {
        slr_connect_end(&c, 1);
        return connected;
    }
    *r = slr_in_group() ? keep(call) : record_now(call);
    return SLR_R_GRAPH;
}
