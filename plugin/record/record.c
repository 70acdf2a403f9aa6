/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: recorders, and what they record. */
#include "base/settings.h"
#include "plugin/record/record_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/log.h"
#include "base/real.h"
#include "cache/captures.h"
#include "plugin/comm/group_record.h"
#include "plugin/connect/connect.h"
#include "plugin/pending/pending_state.h"
#include "plugin/pending/order.h"
#include "plugin/graphs/recorded.h"
#include "plugin/record/replay.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"

/* A copy that is cut, for the parts of a GEMM, is slower below that size (docs/measurements.md). */
#define LARGE_SHARD ((size_t)32 << 20)

/* A lane for one capture. */
struct slr_recorder {
    struct slr_lane lane; /* first */
    struct slr_order order;
    struct slr_pending pending;
    unsigned long long capture; /* that it serves; 0: none now */
    unsigned calls;
    _Atomic bool failed; /* the capture has; the log says so once */
    _Atomic bool drawn;  /* its ring's streams are in the capture */
    struct slr_recorder *next;
};

/* Under the lock: the list, and which capture a recorder serves. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_recorder *list;
static _Atomic unsigned serving;

/* ---- recorders ---- */

static struct slr_recorder *recorder(struct slr_lane *lane)
{
    return (struct slr_recorder *)lane;
}

/* The capture has, nothing else. */
static void failed(struct slr_lane *lane, enum slr_status status, const char *what)
{
    if (!atomic_exchange(&recorder(lane)->failed, true))
        slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", lane->comm->name,
                lane->comm->rank, slr_status_name(status), what);
}

/* It is in the capture, or in none and may be taken in. */
static bool takes(const struct slr_lane *lane, CUstream stream)
{
    const struct slr_recorder *r = (const struct slr_recorder *)lane;
    const unsigned long long capture = slr_graph_capture(stream, NULL);
    return capture ? capture == r->capture : !slr_stream_captures(stream);
}

/* Nothing is tried in a capture. */
static uint32_t by_pace(const struct slr_lane *lane, const struct slr_gemm *gemm, bool on_a)
{
    (void)lane, (void)gemm, (void)on_a;
    return 0;
}

static void fusing(struct slr_lane *lane, enum slr_fusing what, CUstream stream)
{
    if (what == SLR_FUSING_DONE)
        slr_recorded_in_parts(slr_graph_recorded(stream), lane->comm);
}

static const struct slr_lane_kind captured = {.failed = failed, .takes = takes, .parts = by_pace, .fusing = fusing};

static enum slr_status open_ring(struct slr_lane *lane)
{
    SLR_TRY(slr_shared_enter(&lane->comm->shared));
    enum slr_status s = slr_ring_open(&lane->ring);
    slr_shared_leave();
    return s;
}

static struct slr_recorder *new_recorder(struct slr_comm *c)
{
    struct slr_recorder *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->lane.kind = &captured;
    r->lane.comm = c;
    r->lane.pending = &r->pending;
    r->lane.order = &r->order;
    r->lane.ring = (struct slr_ring){.rank = c->rank, .nranks = c->nranks, .ctx = c->lane->ring.ctx};
    pthread_mutex_init(&r->lane.lock, NULL);
    if (open_ring(&r->lane) != SLR_OK) {
        pthread_mutex_destroy(&r->lane.lock);
        free(r);
        return NULL;
    }
    return r;
}

/* The words and the staging may be others than in the capture before. */
static void begin(struct slr_recorder *r, const struct slr_ring *from, unsigned long long capture)
{
    struct slr_ring *ring = &r->lane.ring;
    ring->flags = from->flags;
    ring->dflags = from->dflags;
    ring->slot = from->slot;
    memcpy(ring->slots, from->slots, sizeof ring->slots);
    ring->twin = from->twin;
    ring->carrying = ring->restated = ring->behind = false;
    ring->entries = 0;
    memset(&r->order, 0, sizeof r->order);
    atomic_store(&r->failed, false);
    r->calls = 0;
    atomic_store(&r->drawn, false);
    r->capture = capture;
}

/* The one that serves the capture, or a free one, or a new one. */
static struct slr_recorder *recorder_of(struct slr_comm *c, unsigned long long capture)
{
    pthread_mutex_lock(&lock);
    struct slr_recorder *unused = NULL, *r = list;
    for (; r && !(r->lane.comm == c && r->capture == capture); r = r->next)
        if (r->lane.comm == c && !r->capture)
            unused = r;
    pthread_mutex_unlock(&lock);
    if (r)
        return r;
    struct slr_recorder *fresh = unused ? NULL : new_recorder(c);
    r = unused ? unused : fresh;
    if (!r)
        return NULL;
    pthread_mutex_lock(&lock);
    begin(r, &c->lane->ring, capture);
    if (fresh) {
        fresh->next = list;
        list = fresh;
    }
    atomic_fetch_add(&serving, 1);
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- a gather ---- */

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
    gather.route = NULL;
    lane->pending->gather = gather;
    return s;
}

static enum slr_status enter(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                             bool first)
{
    slr_timeline_capture(lane, call, &g->plan, &g->stamps);
    /* Nothing of the capture before is waited for. */
    return slr_ring_entry(&lane->ring, call->stream, first);
}

static enum slr_status put(struct slr_lane *lane, const struct slr_call *call, struct slr_recorded_gather *g,
                           bool first)
{
    (void)first;
    SLR_TRY(enqueue(lane, call, g));
    slr_pending_add(lane);
    return SLR_OK;
}

static enum slr_status prepare(struct slr_comm *c, struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    g->plan = slr_plan_make(g->shard, c->nranks, c->lane->ring.slot, (uint32_t)slr_get(SLR_S_CHUNKS));
    return slr_record_memory_find(c, g, stand_ins);
}

/* ---- any call ---- */

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
        x->first = recorder(lane)->calls++ == 0;
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
            atomic_store(&recorder(lane)->drawn, true);
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
                                      .flow = call->flow,
                                      .grouped = grouped}};
    x->capture = slr_graph_capture(call->stream, &x->graph);
    if (!x->capture)
        return SLR_ABSENT;
    SLR_TRY(call->flow->capture->prepare(c, &x->g, &x->stand_ins));
    x->prepared = true;
    x->g.nodes.stand_ins = &x->stand_ins;
    struct slr_recorder *r = recorder_of(c, x->capture);
    if (!r)
        return SLR_NOMEM;
    x->lane = &r->lane;
    return SLR_OK;
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
    return slr_graphs_take(c, call->shard) && atomic_load(&c->error) == ncclSuccess && capture && graph &&
           !slr_capture_is_given(capture) && slr_recorded_count(graph, c) + slr_group_kept(c) < SLR_RECORD_MOST;
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
    if (slr_group_keep(call))
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
    enum slr_reason connected = SLR_R_RING;
    slr_connect(&c, &connected, 1); /* until recorded.c lets it go, or: */
    if (connected == SLR_R_RING)
        connected = may_be(call);
    if (connected != SLR_R_RING) {
        slr_connect_end(&c, 1);
        return connected;
    }
    *r = slr_in_group() ? keep(call) : record_now(call);
    return SLR_R_GRAPH;
}

const struct slr_capture slr_capture_gather = {
    .prepare = prepare, .enter = enter, .put = put, .replay = slr_replay_gather};

/* ---- the end of a capture ---- */

/* Streams of the recorder that the program has not made anybody wait for. */
static void take_back(struct slr_recorder *r, CUstream stream)
{
    struct slr_ring *ring = &r->lane.ring;
    const CUstream own[] = {ring->pull, ring->tail, ring->publish, ring->own, ring->carrier};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (slr_graph_capture(own[i], NULL) == r->capture) {
            slr_real.cuEventRecord(ring->entry, own[i]);
            slr_real.cuStreamWaitEvent(stream, ring->entry, 0);
        }
}

static struct slr_recorder *next_of(unsigned long long capture, const struct slr_recorder *after)
{
    pthread_mutex_lock(&lock);
    struct slr_recorder *r = after ? after->next : list;
    while (r && r->capture != capture)
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

void slr_record_end(CUstream stream)
{
    const unsigned long long capture = atomic_load(&serving) ? slr_graph_capture(stream, NULL) : 0;
    if (!capture)
        return;
    slr_guard++;
    for (struct slr_recorder *r = next_of(capture, NULL); r; r = next_of(capture, r)) {
        slr_lane_lock(&r->lane);
        slr_pending_join(&r->lane, SLR_R_JOIN_OTHER_OP, "cuStreamEndCapture");
        if (slr_shared_work_begin(&r->lane.comm->shared) == SLR_OK) {
            take_back(r, stream);
            slr_shared_work_end();
        }
        slr_lane_unlock(&r->lane);
    }
    slr_guard--;
}

/* Of a capture that was broken the driver does not tell which it was: one whose streams capture nothing any more. */
static bool has_ended(const struct slr_recorder *r, unsigned long long capture)
{
    return capture ? r->capture == capture
                   : r->capture && atomic_load(&r->drawn) && !slr_stream_captures(r->lane.ring.pull);
}

void slr_record_ended(unsigned long long capture)
{
    if (!atomic_load(&serving))
        return;
    pthread_mutex_lock(&lock);
    for (struct slr_recorder *r = list; r; r = r->next)
        if (has_ended(r, capture)) {
            r->capture = 0;
            atomic_fetch_sub(&serving, 1);
        }
    pthread_mutex_unlock(&lock);
}

/* Off the list. */
static struct slr_recorder *take_recorder(const struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    struct slr_recorder **at = &list;
    while (*at && (*at)->lane.comm != c)
        at = &(*at)->next;
    struct slr_recorder *r = *at;
    if (r)
        *at = r->next;
    if (r && r->capture)
        atomic_fetch_sub(&serving, 1);
    pthread_mutex_unlock(&lock);
    return r;
}

void slr_record_close(struct slr_comm *c)
{
    for (struct slr_recorder *r; (r = take_recorder(c)) != NULL; free(r)) {
        slr_lane_lock(&r->lane);
        slr_pending_join(&r->lane, SLR_R_JOIN_DESTROY, "the communicator's end"); /* in a capture that goes on */
        slr_lane_unlock(&r->lane);
        slr_ring_close(&r->lane.ring);
        pthread_mutex_destroy(&r->lane.lock);
    }
}
