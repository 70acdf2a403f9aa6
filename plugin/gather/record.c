/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: recorders, and what they record. */
#include "plugin/gather/record.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/cu.h"
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/pending_impl.h"
#include "plugin/gather/order.h"
#include "plugin/gather/recorded.h"
#include "plugin/memory/exports.h"
#include "plugin/trials/trials.h"

#define NOT_HERE 16
/* Gathers alone are not faster than NCCL's in a graph below that many times SLIPRING_MIN_BYTES, and a
 * copy that is cut, for the parts of a GEMM, is slower below that size (docs/measurements.md). */
#define LEAST 8
#define LARGE_SHARD ((size_t)32 << 20)

/* Stands for a communicator in one capture. */
struct recorder {
    struct slr_comm comm; /* first; in no list of communicators */
    struct slr_order order;
    struct slr_pending pending;
    unsigned long long capture; /* 0: none now */
    unsigned gathers;
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
    enum slr_status s = slr_ring_open(&r->comm.ring);
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
    r->gathers = 0;
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

static bool can_change_graphs(void)
{
    return slr_real.cuGraphExecBatchMemOpNodeSetParams && slr_real.cuGraphExecMemcpyNodeSetParams &&
           slr_real.cuGraphNodeSetEnabled && slr_real.cuGraphNodeFindInClone &&
           slr_real.cuGraphChildGraphNodeGetGraph && slr_real.cuStreamGetCaptureInfo;
}

static bool is_connected(const struct slr_comm *c)
{
    const uint64_t word = atomic_load(&c->shared.control->link);
    return slr_link_state(word) == SLR_LINK_CONNECTED && atomic_load(&c->link->checked) == slr_link_epoch(word);
}

static bool mapped_by_all(struct slr_comm *c, const struct slr_place *at, size_t bytes)
{
    bool all = true;
    slr_exports_hold(c);
    for (int r = 0; r < c->nranks && all; r++)
        all = r == c->rank || slr_exported_place(c, at, 0, bytes, r, c->substituted).generation;
    slr_exports_release(c);
    return all;
}

/* The peers' house-keeping threads map it or say that they can not, whatever their programs do
 * meanwhile. */
static void await_settled(struct slr_comm *c, const struct slr_recorded_gather *g)
{
    const uint64_t end = slr_now_ms() + SLR_RECORD_PATIENCE;
    const struct timespec moment = {.tv_nsec = 200000};
    while (!(slr_exports_settled(c, g->block[0]) && slr_exports_settled(c, g->block[1])) && slr_now_ms() < end)
        nanosleep(&moment, NULL);
}

/* Its buffers stay mapped by the peers; released by recorded.c, or by release(). */
static bool reserve(struct slr_comm *c, const struct slr_call *call, struct slr_recorded_gather *g)
{
    const struct slr_place at[2] = {slr_block_find((CUdeviceptr)(uintptr_t)call->send),
                                    slr_block_find((CUdeviceptr)(uintptr_t)call->recv)};
    const size_t bytes[2] = {call->shard, call->shard * (size_t)c->nranks};
    for (int i = 0; i < 2; i++) {
        if (!at[i].generation || !slr_exports_register(c, at[i].generation))
            return false;
        g->block[i] = at[i].generation;
        slr_exports_suggest(c, g->block[i]);
    }
    await_settled(c, g);
    return mapped_by_all(c, &at[0], bytes[0]) && mapped_by_all(c, &at[1], bytes[1]);
}

/* What the ring's copies name until they are given the peers' places. */
static bool find_stand_ins(struct slr_comm *c, struct slr_recorded_gather *g, CUdeviceptr *stand_in)
{
    g->nodes.stand_in = SIZE_MAX;
    for (int r = 0; r < c->nranks; r++) {
        size_t bytes = 0;
        if (r == c->rank)
            continue;
        stand_in[r] = slr_exported_alike(c, r, g->block[0], &bytes);
        if (bytes < g->nodes.stand_in)
            g->nodes.stand_in = bytes;
    }
    return g->nodes.stand_in > 0;
}

/* Peers that do alike have blocks of that kind mapped here soon, as this rank's are by them. */
static bool await_stand_ins(struct slr_comm *c, struct slr_recorded_gather *g, CUdeviceptr *stand_in)
{
    const uint64_t end = slr_now_ms() + SLR_RECORD_PATIENCE;
    const struct timespec moment = {.tv_nsec = 200000};
    bool found;
    while (!(found = find_stand_ins(c, g, stand_in)) && slr_now_ms() < end && atomic_load(&c->error) == ncclSuccess)
        nanosleep(&moment, NULL);
    return found;
}

static void release(struct slr_comm *c, const struct slr_recorded_gather *g)
{
    for (int i = 0; i < 2 && g->block[i]; i++)
        slr_exports_unregister(c, g->block[i], false);
    atomic_fetch_sub(&c->link->calls, 1);
}

/* Under the recorder's lock. */
static enum slr_status enqueue(struct recorder *r, const struct slr_call *call, struct slr_recorded_gather *g,
                               const CUdeviceptr *stand_in)
{
    struct slr_comm *c = &r->comm;
    struct slr_route route[SLR_MAX_RANKS];
    struct slr_gather gather = {.send = (CUdeviceptr)(uintptr_t)call->send,
                                .recv = (CUdeviceptr)(uintptr_t)call->recv,
                                .stream = call->stream,
                                .route = route,
                                .wanted = g->shard < LARGE_SHARD ? SLR_WANTS_SHARDS : SLR_WANTS_CHUNKS,
                                .plan = g->plan};
    SLR_TRY(slr_shared_work_begin(&c->shared));
    slr_record_routes(&c->ring, stand_in, route);
    c->ring.recorded = &g->nodes;
    /* Nothing of the capture before is waited for. */
    enum slr_status s = slr_ring_entry(&c->ring, call->stream, r->gathers == 0);
    if (s == SLR_OK)
        s = slr_ring_begin(&c->ring, &gather);
    if (s == SLR_OK)
        s = slr_ring_finish(&c->ring, &gather);
    c->ring.recorded = NULL;
    slr_shared_work_end();
    gather.route = NULL;
    c->pending->gather = gather;
    r->gathers++;
    return s == SLR_OK && g->nodes.failed ? SLR_CUDA : s;
}

static enum slr_status record(struct recorder *r, const struct slr_call *call, struct slr_recorded_gather *g,
                              const CUdeviceptr *stand_in)
{
    struct slr_comm *c = &r->comm;
    /* What this call sends may be what an earlier one on the stream is still gathering. */
    slr_pending_join_stream(call->stream, false, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    slr_comm_lock(c);
    slr_pending_join(c, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    enum slr_status s = enqueue(r, call, g, stand_in);
    if (s == SLR_OK)
        slr_pending_add(c);
    slr_comm_unlock(c);
    return s;
}

/* By facts that are equal on ranks that do the same. */
static bool is_for_the_ring(const struct slr_call *call, CUgraph *graph, unsigned long long *capture)
{
    struct slr_comm *c = call->comm;
    return slr_get(SLR_S_GRAPHS) && can_change_graphs() && !c->put && atomic_load(&c->error) == ncclSuccess &&
           !slr_stream_is_default(slr_stream_name(call->stream, false)) &&
           call->shard * (uint64_t)c->nranks / LEAST >= slr_get(SLR_S_MIN_BYTES) && slr_trials_allow(c, call->shard) &&
           info(call->stream, capture, graph) && *graph && may_be_here(*capture) &&
           slr_recorded_count(*graph, c) < SLR_RECORD_MOST;
}

enum slr_reason slr_record_gather(struct slr_call *call, ncclResult_t *r)
{
    struct slr_comm *c = call->comm;
    CUgraph graph = NULL;
    unsigned long long capture = 0;
    if (!is_for_the_ring(call, &graph, &capture))
        return SLR_R_CAPTURE;
    struct slr_recorded_gather g = {
        .comm = c->id, .rank = c->rank, .send = call->send, .recv = call->recv, .shard = call->shard};
    CUdeviceptr stand_in[SLR_MAX_RANKS];
    atomic_fetch_add(&c->link->calls, 1); /* first: then what is connected stays so (connect.h) */
    struct recorder *recorder =
        is_connected(c) && reserve(c, call, &g) && await_stand_ins(c, &g, stand_in) ? recorder_of(c, capture) : NULL;
    if (!recorder) {
        release(c, &g);
        return SLR_R_CAPTURE;
    }
    g.plan = slr_plan_make(call->shard, c->nranks, c->ring.slot, (uint32_t)slr_get(SLR_S_CHUNKS));
    enum slr_status s = record(recorder, call, &g, stand_in);
    *r = ncclSuccess;
    if (s != SLR_OK || !slr_recorded_add(graph, &g)) {
        slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", c->name, c->rank,
                slr_status_name(s == SLR_OK ? SLR_NOMEM : s),
                "a gather could not be captured: the graph is of no use; SLIPRING_GRAPHS=off leaves it to NCCL");
        slr_recorded_free(&g.nodes);
        release(c, &g);
        *r = s == SLR_CUDA ? ncclUnhandledCudaError : ncclSystemError;
    }
    return SLR_R_GRAPH;
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
        pthread_mutex_destroy(&r->comm.lock);
    }
}
