/* Measuring what stays with NCCL: passed all-gathers, and the other collectives. */
#include "base/cu.h"
#include "plugin/calls/calls.h"
#include "plugin/gather/graphs.h"
#include "plugin/comm/group_record.h"
#include "plugin/gather/passed_alone.h"
#include "plugin/gather/nccl_call.h"
#include "plugin/util/nccl_type.h"
#include "plugin/calls/passed.h"
#include "plugin/gather/pending.h"
#include "plugin/util/process.h"
#include "plugin/timeline/timeline_impl.h"
#include "plugin/util/nccl_names.h"

/* Stamps the stream before the real call. NULL: the call is not measured. Non-blocking communicators launch later. */
static struct slr_timed *begin(struct slr_comm *c, enum slr_timed_kind kind, uint64_t number, CUstream stream)
{
    struct slr_timeline *t = c->pass != SLR_R_NONBLOCKING ? slr_timeline_of(c) : NULL;
    if (!t || slr_context_enter(t->ctx) != SLR_OK)
        return NULL;
    struct slr_timed *m = slr_stream_captures(stream) ? NULL : slr_timeline_take(t, kind, number);
    if (m) {
        m->stream = stream;
        slr_timing_mark(&m->timing, SLR_LANE_APP, stream);
    }
    slr_shared_leave();
    return m;
}

static void end(struct slr_comm *c, struct slr_timed *m, ncclResult_t r, size_t bytes)
{
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (!m)
        return;
    if (r != ncclSuccess || slr_context_enter(t->ctx) != SLR_OK) {
        slr_timeline_give_back(t, m);
        return;
    }
    slr_timing_did(&m->timing, SLR_LANE_APP, m->stream, SLR_SPAN_NCCL, -1, -1, bytes);
    slr_shared_leave();
    slr_timeline_hand_in(t, m);
}

static ncclResult_t passed(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    /* What the stream still has to wait for is not NCCL's time. */
    slr_pending_join_stream(call->stream, false, SLR_R_JOIN_OTHER_OP, "ncclAllGather");
    struct slr_timed *m = begin(c, SLR_TIMED_PASS, call->passed, call->stream);
    if (m) {
        m->reason = call->why;
        m->shard = call->shard;
        m->count = call->count;
        m->type = call->type;
        m->in_place = slr_call_in_place(call);
        m->send = call->send;
        m->recv = call->recv;
    }
    ncclResult_t r = slr_gather_nccl(call);
    end(c, m, r, call->shard * (size_t)c->nranks);
    return r;
}

ncclResult_t slr_gather_passed(const struct slr_call *call)
{
    struct slr_comm *c = slr_get(SLR_S_TRACE) ? call->comm : NULL;
    if (!c || !slr_timeline_turn(call->passed) || slr_in_group())
        return slr_gather_nccl(call);
    return passed(call);
}

void slr_other_begin(struct slr_other *o)
{
    slr_nccl_begin(o->comm, o->stream);
    o->tracked = slr_get(SLR_S_TRACE) && !slr_process_off() ? slr_comm_find(o->comm) : NULL;
    if (!o->tracked)
        return;
    slr_guard++; /* NCCL may call another one of its functions for this one */
    CUstream stream = (CUstream)o->stream;
    uint64_t number = o->tracked->timeline_counts.other[o->func]++; /* from 0, as NCCL counts them for profilers */
    if (slr_in_group())                                             /* its end joins, and launches */
        return;
    slr_pending_join_stream(stream, false, SLR_R_JOIN_OTHER_OP, slr_tune_func_name(o->func));
    if (!slr_timeline_turn(number + 1))
        return;
    o->timed = begin(o->tracked, SLR_TIMED_OTHER, number, stream);
    if (o->timed) {
        o->timed->func = slr_tune_func_name(o->func);
        o->timed->count = o->count;
        o->timed->type = o->type;
    }
}

ncclResult_t slr_other_end(struct slr_other *o, ncclResult_t r)
{
    if (!o->tracked)
        return slr_nccl_end(o->comm, o->stream, r);
    end(o->tracked, o->timed, r, o->count * slr_type_bytes(o->type));
    slr_comm_put(o->tracked);
    slr_guard--;
    return slr_nccl_end(o->comm, o->stream, r);
}

/* The graph that the call's stream records into; NULL with *captures: a capture that is broken, and records nothing. */
static CUgraph recorded(const struct slr_call *call, bool *captures)
{
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return NULL;
    CUgraph graph = slr_graph_recorded(call->stream);
    *captures = graph || slr_stream_captures(call->stream);
    slr_shared_leave();
    return graph;
}

void slr_gather_passes_alone(const struct slr_call *call, enum slr_reason why)
{
    bool captures = why == SLR_R_CAPTURE;
    CUgraph graph = recorded(call, &captures);
    if (captures)
        slr_graph_hold(slr_graph_of(graph), call->comm);
    else
        slr_alone_note(call->comm, why, 1);
}
