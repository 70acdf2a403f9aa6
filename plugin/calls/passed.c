/* SPDX-License-Identifier: Apache-2.0 */
/* What stays with NCCL: the other operations, and calls that this rank passes alone. */
#include "base/status.h"
#include "base/settings.h"
#include "plugin/calls/calls.h"
#include "plugin/graphs/graphs.h"
#include "plugin/comm/group_kept.h"
#include "plugin/passed/passed_alone.h"
#include "plugin/passed/nccl_call.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/calls/collective.h"
#include "plugin/pending/pending.h"
#include "plugin/util/process.h"
#include "plugin/timeline/timeline.h"

void slr_other_begin(struct slr_other *o)
{
    slr_nccl_begin(o->comm, o->stream); /* its order behind the gathers, measured or not */
    o->tracked = slr_get(SLR_S_TRACE) && !slr_process_off() ? slr_comm_find(o->comm) : NULL;
    if (!o->tracked)
        return;
    slr_guard++; /* NCCL may call another one of its functions for this one */
    o->outer = slr_program_begin();
    CUstream stream = (CUstream)o->stream;
    /* From 0, as NCCL counts the operations of a function for its profilers. */
    uint64_t number = o->tracked->timeline_counts->other[o->func]++;
    if (slr_in_group()) /* the group's end joins the stream, and launches */
        return;
    slr_pending_join_stream(stream, SLR_R_JOIN_OTHER_OP, slr_tune_func_name(o->func));
    if (!slr_timeline_turn(number + 1))
        return;
    o->timed = slr_timeline_other_begin(o->tracked, slr_tune_func_name(o->func), number, o->count, o->type, stream);
}

ncclResult_t slr_other_end(struct slr_other *o, ncclResult_t r)
{
    if (!o->tracked)
        return slr_nccl_end(o->comm, o->stream, r);
    slr_timeline_nccl_end(o->tracked, o->timed, r, o->count * slr_type_bytes(o->type));
    slr_comm_put(o->tracked);
    slr_program_end(o->outer);
    slr_guard--;
    return slr_nccl_end(o->comm, o->stream, r);
}

/* The graph that the call's stream captures into; NULL with *captures: a capture that is broken, and
 * captures nothing. */
static CUgraph captured_into(const struct slr_call *call, bool *captures)
{
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return NULL;
    CUgraph graph = slr_graph_captured_into(call->stream);
    *captures = graph || slr_stream_captures(call->stream);
    slr_shared_leave();
    return graph;
}

void slr_gather_passes_alone(const struct slr_call *call, enum slr_reason why)
{
    /* A region is a fact of the program, but on a capturing stream its gather is still no call. */
    bool captures = why == SLR_R_CAPTURE;
    CUgraph graph = captured_into(call, &captures);
    if (captures)
        slr_graph_hold(graph, call->comm, 1);
    else
        slr_alone_note(call->comm, why, 1);
}
