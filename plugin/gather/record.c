/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: recorders, and what they record. */
#include "plugin/gather/record.h"

#include <stdlib.h>
#include <string.h>
#include "base/cu.h"
#include "base/log.h"
#include "plugin/connect/connect.h"
#include "plugin/connect/graphs_try.h"
#include "plugin/gather/for_replays.h"
#include "plugin/gather/pending_impl.h"
#include "plugin/gather/order.h"
#include "plugin/gather/record_memory.h"
#include "plugin/gather/recorded.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/trials.h"

#define NOT_HERE 16
/* A copy that is cut, for the parts of a GEMM, is slower below that size (docs/measurements.md). */
#define LARGE_SHARD ((size_t)32 << 20)

/* Stands for a communicator in one capture. */
struct recorder {
    struct slr_comm comm; /* first; in no list of communicators */
    struct slr_order order;
    struct slr_pending pending;
    unsigned long long capture; /* 0: none now */
    unsigned calls;
    CUevent bounced; /* the latest use of the bounce buffer is over */
    bool bounces;    /* it has been recorded in this capture */
    struct recorder *next;
};

/* Under the lock: the list, and which capture a recorder serves. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct recorder *list;
static _Atomic unsigned serving;

/* Captures into graphs of the program's: the latest ones. */
static _Atomic unsigned long long not_here[NOT_HERE];
static _Atomic unsigned not_here_count;

static bool info(CUstream stream, unsigned long long *capture, CUgraph *graph)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    if (!slr_real.cuStreamGetCaptureInfo ||
        slr_real.cuStreamGetCaptureInfo(stream, &status, &id, graph, NULL, NULL, NULL) != CUDA_SUCCESS)
        return false;
    *capture = id;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

unsigned long long slr_record_capture(CUstream stream)
{
    unsigned long long capture = 0;
    return info(stream, &capture, NULL) ? capture : 0;
}

void slr_record_not_here(CUstream stream)
{
    unsigned long long capture = slr_record_capture(stream);
    if (capture)
        atomic_store(&not_here[atomic_fetch_add(&not_here_count, 1) % NOT_HERE], capture);
}

static bool may_be_here(unsigned long long capture)
{
    for (int i = 0; i < NOT_HERE; i++)
        if (atomic_load(&not_here[i]) == capture)
            return false;
    return true;
}

/* ---- recorders ---- */

static enum slr_status open_ring(struct recorder *r)
{
    SLR_TRY(slr_shared_enter(&r->comm.shared));
    enum slr_status s = SLR_CU(cuEventCreate, &r->bounced, CU_EVENT_DISABLE_TIMING);
    if (s == SLR_OK && (s = slr_ring_open(&r->comm.ring)) != SLR_OK)
        slr_real.cuEventDestroy(r->bounced);
    slr_shared_leave();
    return s;
}

static struct recorder *new_recorder(struct slr_comm *c)
{
    struct recorder *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    struct slr_comm *own = &r->comm;
    own->records = c;
    own->id = c->id;
    memcpy(own->name, c->name, sizeof own->name);
    own->rank = c->rank;
    own->nranks = c->nranks;
    own->pass = SLR_R_RING;
    own->shared = (struct slr_shared){.control = c->shared.control,
                                      .rank = c->rank,
                                      .nranks = c->nranks,
                                      .device = c->shared.device,
                                      .ctx = c->shared.ctx,
                                      .resets = c->shared.resets};
    own->link = c->link;
    own->order = &r->order;
    own->pending = &r->pending;
    pthread_mutex_init(&own->lock, NULL);
    own->ring = (struct slr_ring){.rank = c->rank, .nranks = c->nranks, .ctx = c->ring.ctx};
    if (open_ring(r) != SLR_OK) {
        pthread_mutex_destroy(&own->lock);
        free(r);
        return NULL;
    }
    return r;
}

/* The words and the staging may be others than in the capture before. */
static void begin(struct recorder *r, const struct slr_comm *c, unsigned long long capture)
{
    struct slr_ring *ring = &r->comm.ring;
    ring->flags = c->ring.flags;
    ring->dflags = c->ring.dflags;
    ring->slot = c->ring.slot;
    memcpy(ring->slots, c->ring.slots, sizeof ring->slots);
    ring->carrying = ring->restated = ring->behind = false;
    ring->entries = 0;
    atomic_store(&r->comm.error, ncclSuccess);
    memset(&r->order, 0, sizeof r->order);
    r->calls = 0;
    r->bounces = false;
    r->capture = capture;
}

/* The one that serves the capture, or a free one, or a new one. */
static struct recorder *recorder_of(struct slr_comm *c, unsigned long long capture)
{
    pthread_mutex_lock(&lock);
    struct recorder *unused = NULL, *r = list;
    for (; r && !(r->comm.records == c && r->capture == capture); r = r->next)
        if (r->comm.records == c && !r->capture)
            unused = r;
    pthread_mutex_unlock(&lock);
    if (r)
        return r;
    struct recorder *fresh = unused ? NULL : new_recorder(c);
    r = unused ? unused : fresh;
    if (!r)
        return NULL;
    pthread_mutex_lock(&lock);
    begin(r, c, capture);
    if (fresh) {
        fresh->next = list;
        list = fresh;
    }
    atomic_fetch_add(&serving, 1);
    pthread_mutex_unlock(&lock);
    return r;
}

bool slr_record_takes(const struct slr_comm *recorder, CUstream stream)
{
    const struct recorder *r = (const struct recorder *)recorder;
    unsigned long long capture = slr_record_capture(stream);
    return capture ? capture == r->capture : !slr_stream_captures(stream);
}

/* ---- a gather ---- */

/* Under the recorder's lock. */
static enum slr_status enqueue(struct slr_comm *c, const struct slr_call *call, struct slr_recorded_gather *g,
                               bool first)
{
    struct slr_route route[SLR_MAX_RANKS];
    struct slr_gather gather = {.send = (CUdeviceptr)(uintptr_t)g->send,
                                .recv = (CUdeviceptr)(uintptr_t)g->recv,
                                .stream = call->stream,
                                .route = route,
                                .wanted = g->shard < LARGE_SHARD ? SLR_WANTS_SHARDS : SLR_WANTS_CHUNKS,
                                .plan = g->plan};
    SLR_TRY(slr_shared_work_begin(&c->shared));
    slr_record_routes(&c->ring, route);
    c->ring.recorded = &g->nodes;
    /* Nothing of the capture before is waited for. */
    enum slr_status s = slr_ring_entry(&c->ring, call->stream, first);
    if (s == SLR_OK)
        s = slr_ring_begin(&c->ring, &gather);
    if (s == SLR_OK)
        s = slr_ring_finish(&c->ring, &gather);
    c->ring.recorded = NULL;
    slr_shared_work_end();
    gather.route = NULL;
    c->pending->gather = gather;
    return s;
}

/* Of a gather by way of the bounce buffer; each use behind the one before. */
static enum slr_status bounce_in(struct recorder *r, const struct slr_call *call, const struct slr_recorded_gather *g)
{
    if (r->bounces)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, call->stream, r->bounced, 0));
    return SLR_CU(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)g->send, (CUdeviceptr)(uintptr_t)call->send, call->shard,
                  call->stream);
}

static enum slr_status bounce_out(struct recorder *r, const struct slr_call *call, const struct slr_recorded_gather *g)
{
    slr_pending_join(&r->comm, SLR_R_JOIN_OTHER_OP, "ncclAllGather");
    SLR_TRY(SLR_CU(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)call->recv, (CUdeviceptr)(uintptr_t)g->recv,
                   call->shard * (size_t)r->comm.nranks, call->stream));
    r->bounces = true;
    return SLR_CU(cuEventRecord, r->bounced, call->stream);
}

static enum slr_status put_now(struct recorder *r, const struct slr_call *call, struct slr_recorded_gather *g,
                               bool first)
{
    const bool bounces = g->recv != call->recv;
    if (bounces)
        SLR_TRY(bounce_in(r, call, g));
    SLR_TRY(enqueue(&r->comm, call, g, first));
    slr_pending_add(&r->comm);
    return bounces ? bounce_out(r, call, g) : SLR_OK;
}

static enum slr_status put(struct slr_comm *recorder, const struct slr_call *call, struct slr_recorded_gather *g,
                           bool first)
{
    slr_timeline_capture(recorder, call, &g->plan, &g->stamps);
    enum slr_status s = put_now((struct recorder *)recorder, call, g, first);
    if (s != SLR_OK)
        slr_timeline_close(recorder);
    return s;
}

static enum slr_status prepare(struct slr_comm *c, struct slr_recorded_gather *g, struct slr_stand_ins *stand_ins)
{
    g->plan = slr_plan_make(g->shard, c->nranks, c->ring.slot, (uint32_t)slr_get(SLR_S_CHUNKS));
    return slr_record_memory_find(c, g, stand_ins);
}

/* ---- any call ---- */

static enum slr_status record(struct recorder *r, const struct slr_call *call, const struct slr_recordable *what,
                              struct slr_recorded_gather *g)
{
    struct slr_comm *c = &r->comm;
    /* What this call sends may be what an earlier one on the stream is still gathering. */
    slr_pending_join_stream(call->stream, false, SLR_R_JOIN_NEXT_GATHER, what->name);
    slr_comm_lock(c);
    slr_pending_join(c, SLR_R_JOIN_NEXT_GATHER, what->name);
    enum slr_status s = slr_shared_work_begin(&c->shared);
    if (s == SLR_OK) {
        s = what->put(c, call, g, r->calls++ == 0);
        slr_shared_work_end();
    }
    slr_comm_unlock(c);
    return s == SLR_OK && g->nodes.failed ? SLR_CUDA : s;
}

/* By facts that are equal on ranks that do the same. */
static bool is_for_the_ring(const struct slr_call *call, CUgraph *graph, unsigned long long *capture)
{
    struct slr_comm *c = call->comm;
    if (!slr_graphs_all_can(c))
        slr_graphs_missed();
    return slr_graphs_take(c, call->shard) && atomic_load(&c->error) == ncclSuccess &&
           !slr_stream_is_default(slr_stream_name(call->stream, false)) && info(call->stream, capture, graph) &&
           *graph && may_be_here(*capture) && slr_recorded_count(*graph, c) < SLR_RECORD_MOST;
}

/* What a rank can not do here alone fails its capture: the others have recorded the call. */
static enum slr_status record_in(CUgraph graph, unsigned long long capture, const struct slr_call *call,
                                 const struct slr_recordable *what)
{
    struct slr_comm *c = call->comm;
    struct slr_stand_ins stand_ins;
    struct slr_recorded_gather g = {.comm = c->id,
                                    .rank = c->rank,
                                    .send = call->send,
                                    .recv = call->recv,
                                    .shard = call->shard,
                                    .scatter = call->scatter};
    SLR_TRY(what->prepare(c, &g, &stand_ins));
    g.nodes.stand_ins = &stand_ins;
    struct recorder *recorder = recorder_of(c, capture);
    enum slr_status s = recorder ? record(recorder, call, what, &g) : SLR_NOMEM;
    g.nodes.stand_ins = NULL;
    if (s == SLR_OK && !slr_recorded_add(graph, &g))
        s = SLR_NOMEM;
    if (s != SLR_OK) {
        slr_recorded_drop(&g);
        slr_record_memory_release(c, &g);
    }
    return s;
}

/* When the ranks are connected. */
static enum slr_reason may_be(const struct slr_call *call, const struct slr_recordable *what)
{
    if (!slr_graphs_all_can(call->comm)) { /* a trial has failed meanwhile */
        slr_graphs_missed();
        return SLR_R_CAPTURE;
    }
    return what->can ? what->can(call) : SLR_R_RING;
}

enum slr_reason slr_record_call(struct slr_call *call, const struct slr_recordable *what, ncclResult_t *r)
{
    struct slr_comm *c = call->comm;
    CUgraph graph = NULL;
    unsigned long long capture = 0;
    if (!is_for_the_ring(call, &graph, &capture))
        return SLR_R_CAPTURE;
    enum slr_reason connected = SLR_R_RING;
    slr_connect(&c, &connected, 1); /* until recorded.c lets it go, or: */
    if (connected == SLR_R_RING)
        connected = may_be(call, what);
    if (connected == SLR_R_RING && !call->scatter)
        slr_for_replays_announce(c);
    const enum slr_status s = connected == SLR_R_RING ? record_in(graph, capture, call, what) : SLR_ABSENT;
    if (s != SLR_OK)
        slr_connect_end(&c, 1);
    if (connected != SLR_R_RING)
        return connected;
    *r = s == SLR_OK ? ncclSuccess : s == SLR_CUDA ? ncclUnhandledCudaError : ncclSystemError;
    if (s != SLR_OK)
        slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank,
                slr_status_name(s),
                "a gather could not be captured: the graph is of no use; SLIPRING_GRAPHS=off leaves it to NCCL");
    return SLR_R_GRAPH;
}

enum slr_reason slr_record_gather(struct slr_call *call, ncclResult_t *r)
{
    static const struct slr_recordable gather = {.name = "ncclAllGather", .prepare = prepare, .put = put};
    return slr_trials_allow(call->comm, call->shard) ? slr_record_call(call, &gather, r) : SLR_R_CAPTURE;
}

/* ---- the end of a capture ---- */

/* Streams of the recorder that the program has not made anybody wait for. */
static void take_back(struct recorder *r, CUstream stream)
{
    struct slr_ring *ring = &r->comm.ring;
    const CUstream own[] = {ring->pull, ring->tail, ring->publish, ring->own, ring->carrier};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (slr_record_capture(own[i]) == r->capture) {
            slr_real.cuEventRecord(ring->entry, own[i]);
            slr_real.cuStreamWaitEvent(stream, ring->entry, 0);
        }
}

static struct recorder *next_of(unsigned long long capture, const struct recorder *after)
{
    pthread_mutex_lock(&lock);
    struct recorder *r = after ? after->next : list;
    while (r && r->capture != capture)
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

void slr_record_end(CUstream stream)
{
    const unsigned long long capture = atomic_load(&serving) ? slr_record_capture(stream) : 0;
    if (!capture)
        return;
    slr_guard++;
    for (struct recorder *r = next_of(capture, NULL); r; r = next_of(capture, r)) {
        slr_comm_lock(&r->comm);
        slr_pending_join(&r->comm, SLR_R_JOIN_OTHER_OP, "cuStreamEndCapture");
        if (slr_shared_work_begin(&r->comm.shared) == SLR_OK) {
            take_back(r, stream);
            slr_shared_work_end();
        }
        slr_comm_unlock(&r->comm);
    }
    slr_guard--;
}

void slr_record_ended(unsigned long long capture)
{
    if (!capture || !atomic_load(&serving))
        return;
    pthread_mutex_lock(&lock);
    for (struct recorder *r = list; r; r = r->next)
        if (r->capture == capture) {
            r->capture = 0;
            atomic_fetch_sub(&serving, 1);
        }
    pthread_mutex_unlock(&lock);
}

/* Off the list. */
static struct recorder *take_recorder(const struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    struct recorder **at = &list;
    while (*at && (*at)->comm.records != c)
        at = &(*at)->next;
    struct recorder *r = *at;
    if (r)
        *at = r->next;
    if (r && r->capture)
        atomic_fetch_sub(&serving, 1);
    pthread_mutex_unlock(&lock);
    return r;
}

void slr_record_close(struct slr_comm *c)
{
    for (struct recorder *r; (r = take_recorder(c)) != NULL; free(r)) {
        slr_comm_lock(&r->comm);
        slr_pending_join(&r->comm, SLR_R_JOIN_DESTROY, "the communicator's end"); /* in a capture that goes on */
        slr_comm_unlock(&r->comm);
        slr_ring_close(&r->comm.ring);
        slr_real.cuEventDestroy(r->bounced);
        pthread_mutex_destroy(&r->comm.lock);
    }
}
