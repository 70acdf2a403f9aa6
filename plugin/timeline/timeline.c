/* SPDX-License-Identifier: Apache-2.0 */
/* Records of measured calls, from the application's call to the reader (timeline.h). */
#include "plugin/timeline/timeline.h"

#include <stdlib.h>
#include <time.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/wait.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/comm/call.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/timeline/timeline_impl.h"
#include "plugin/util/process.h"

#define EXIT_WAIT_S 1 /* seconds */
/* The house-keeping thread is woken when so many records are in use, and again for each so many
 * more: its tick is 50 ms, and a program of short gathers may need all records in less. */
#define MANY 16
#define MANY_MORE 8

static _Atomic bool over; /* the process ends: no CUDA call any more */

bool slr_timeline_turn(uint64_t number)
{
    uint64_t every = slr_get(SLR_S_TRACE);
    /* The first call is measured whatever N is, so that a short run shows something. */
    return every && (number - 1) % every == 0;
}

/* The reader may be in a CUDA call that does not return: an exit waits for it no longer than this. */
static bool lock_for_exit(pthread_mutex_t *mutex)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += EXIT_WAIT_S;
    return pthread_mutex_timedlock(mutex, &end) == 0;
}

static void last_look(struct slr_comm *c)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    if (!timeline || !lock_for_exit(&timeline->reading))
        return;
    if (slr_context_enter(timeline->ctx) == SLR_OK) {
        slr_timeline_read(c, timeline, true);
        slr_shared_leave();
    }
    slr_timeline_say_end(c, timeline);
    pthread_mutex_unlock(&timeline->reading);
}

/* Registered when the first call is measured, after CUDA has been initialised; what is registered
 * last runs first, so CUDA has not ended here. */
static void at_exit(void)
{
    /* Static: 8 KiB, and exit() may be called on any stack. */
    static struct slr_comm *list[SLR_MANY_COMMS];
    if (slr_process_off())
        return;
    slr_guard++;
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        last_look(list[i]);
        slr_comm_put(list[i]);
    }
    atomic_store(&over, true); /* CUDA's own exit handlers come next */
    slr_guard--;
}

/* What the process needs, looked for once. */
static bool available(void)
{
    static struct slr_once once;
    static bool yes;
    if (slr_once_begin(&once)) {
        /* Without the exit handler nobody would keep the reader from calling CUDA when CUDA has ended. */
        yes = slr_real.cuEventQuery && slr_real.cuEventElapsedTime && atexit(at_exit) == 0;
        if (!yes)
            slr_log(SLR_LOG_WARN, "trace_off", "msg=%s",
                    "SLIPRING_TRACE has no effect: the driver has no cuEventElapsedTime, or no exit handler is left");
        slr_once_end(&once);
    }
    return yes;
}

/* A communicator that passes everything has no context, so a timeline has its own reference to the
 * device's primary one. */
static bool open_on_device(const struct slr_comm *c, struct slr_timeline *timeline)
{
    int dev = 0;
    if (slr_real.ncclCommCuDevice(c->nccl, &dev) != ncclSuccess ||
        SLR_CU(cuDeviceGet, &timeline->device, dev) != SLR_OK ||
        SLR_CU(cuDevicePrimaryCtxRetain, &timeline->ctx, timeline->device) != SLR_OK)
        return false;
    bool open = false;
    if (slr_context_enter(timeline->ctx) == SLR_OK) {
        open = slr_device_clock_open(&timeline->clock) == SLR_OK;
        slr_shared_leave();
    }
    if (!open)
        slr_real.cuDevicePrimaryCtxRelease(timeline->device);
    return open;
}

static struct slr_timeline *make(const struct slr_comm *c)
{
    struct slr_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline || !open_on_device(c, timeline)) {
        free(timeline);
        return NULL;
    }
    pthread_mutex_init(&timeline->lock, NULL);
    pthread_mutex_init(&timeline->reading, NULL);
    timeline->closed_end = &timeline->closed;
    return timeline;
}

struct slr_timeline *slr_timeline_of(struct slr_comm *c)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    if (atomic_load(&over))
        return NULL;
    if (timeline || c->timeline_counts->refused || !available())
        return timeline;
    /* Only the threads that call on the communicator come here, one at a time, as NCCL wants it. */
    timeline = make(c);
    if (!timeline) {
        c->timeline_counts->refused = true;
        slr_log(SLR_LOG_WARN, "trace_off", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "the communicator is not measured: events or a stream could not be made");
        return NULL;
    }
    slr_timeline_say_start(c, timeline);
    atomic_store(&c->timeline, timeline);
    return timeline;
}

struct slr_timed *slr_timeline_record(struct slr_timeline *timeline, enum slr_timed_kind kind, uint64_t number)
{
    pthread_mutex_lock(&timeline->lock);
    struct slr_timed *m = timeline->free;
    /* Records are made when they are needed: most programs have few calls in flight. */
    if (m)
        timeline->free = m->next;
    else if (timeline->made < SLR_TIMELINE_RECORDS && timeline->events < SLR_TIMELINE_EVENTS &&
             (m = calloc(1, sizeof *m)))
        timeline->made++;
    unsigned taken = timeline->taken += m != NULL;
    pthread_mutex_unlock(&timeline->lock);
    if (taken >= MANY && taken % MANY_MORE == 0)
        slr_oob_wake_self(); /* more than the house-keeping thread's ticks keep up with */
    if (!m)
        return NULL;
    /* Its CUDA events stay with the record, as making them costs more than recording. */
    *m = (struct slr_timed){
        .timing = m->timing, .counted = m->counted, .kind = kind, .number = number, .ended = SLR_R_RING};
    slr_timing_begin(&m->timing);
    return m;
}

struct slr_timed *slr_timeline_take(struct slr_timeline *timeline, enum slr_timed_kind kind, uint64_t number)
{
    struct slr_timed *m = slr_timeline_record(timeline, kind, number);
    atomic_fetch_add_explicit(&timeline->sampled, 1, memory_order_relaxed);
    if (!m)
        atomic_fetch_add_explicit(&timeline->dropped, 1, memory_order_relaxed);
    return m;
}

void slr_timeline_hand_in(struct slr_timeline *timeline, struct slr_timed *m)
{
    m->next = NULL;
    /* At the tail: the reader stops at the first that is not complete, and calls end in order. */
    pthread_mutex_lock(&timeline->lock);
    /* What it has made since it was counted last: records keep their events. */
    timeline->events += m->timing.created - m->counted;
    m->counted = m->timing.created;
    *timeline->closed_end = m;
    timeline->closed_end = &m->next;
    pthread_mutex_unlock(&timeline->lock);
}

void slr_timeline_give_back(struct slr_timeline *timeline, struct slr_timed *m)
{
    pthread_mutex_lock(&timeline->lock);
    timeline->taken--;
    m->next = timeline->free;
    timeline->free = m;
    pthread_mutex_unlock(&timeline->lock);
}

void slr_timeline_describe(struct slr_timed *m, const struct slr_call *call)
{
    m->what = call->flow->kind;
    m->reason = call->why;
    m->shard = call->shard;
    m->context = call->context;
    m->count = call->count;
    m->type = call->type;
    m->in_place = slr_call_in_place(call);
    m->stream = call->stream;
    /* Addresses are for the log, and never read through. */
    m->send = call->send;
    m->recv = call->recv;
}

static void give_back_expected(struct slr_timeline *timeline)
{
    if (timeline->expected)
        slr_timeline_give_back(timeline, timeline->expected);
    timeline->expected = NULL;
}

struct slr_timing *slr_timeline_expect(struct slr_comm *c, CUstream stream)
{
    /* Only a guess: other calls of the communicator may come before. */
    const uint64_t number = c->substituted + 1;
    /* A call makes the timeline: another thread than this one may be in one. */
    struct slr_timeline *timeline = atomic_load(&c->timeline) && slr_timeline_turn(number) ? slr_timeline_of(c) : NULL;
    if (!timeline)
        return NULL;
    give_back_expected(timeline);
    timeline->expected = slr_timeline_record(timeline, SLR_TIMED_SCATTER, number);
    if (!timeline->expected)
        return NULL;
    slr_timing_mark(&timeline->expected->timing, SLR_TRACK_APP, stream);
    return &timeline->expected->timing;
}

/* Of a call whose GEMM comes before it: the record that the GEMM has begun, or a new one. */
static struct slr_timed *expected(struct slr_timeline *timeline, const struct slr_call *call,
                                  const struct slr_timing *gemm)
{
    struct slr_timed *m = timeline->expected;
    if (!m || &m->timing != gemm) {
        give_back_expected(timeline);
        return slr_timeline_take(timeline, SLR_TIMED_SCATTER, call->number);
    }
    timeline->expected = NULL;
    m->number = call->number;
    atomic_fetch_add_explicit(&timeline->sampled, 1, memory_order_relaxed);
    return m;
}

/* Sets ring.now.timing when the call is to be measured. */
static void begins(const struct slr_call *call, const struct slr_watched *w)
{
    struct slr_comm *c = call->comm;
    c->lane->ring.now.timing = NULL;
    if (!slr_timeline_turn(call->number))
        return;
    struct slr_timeline *timeline = slr_timeline_of(c);
    const bool produced = call->flow->kind->produced;
    struct slr_timed *m = !timeline  ? NULL
                          : produced ? expected(timeline, call, w->gemm)
                                     : slr_timeline_take(timeline, SLR_TIMED_RING, call->number);
    if (!m)
        return;
    slr_timeline_describe(m, call);
    m->reason = SLR_R_RING;
    c->lane->ring.now.timing = &m->timing;
    if (!produced)
        slr_timing_mark(&m->timing, SLR_TRACK_APP, call->stream);
}

/* The record of the gather under way. NULL: it is not measured. */
static struct slr_timed *open_of(const struct slr_lane *lane)
{
    return (struct slr_timed *)lane->ring.now.timing;
}

static struct slr_timed *take_open(struct slr_lane *lane)
{
    struct slr_timed *m = open_of(lane);
    lane->ring.now.timing = NULL;
    return m;
}

void slr_timeline_deliveries(struct slr_timed *m, const struct slr_comm *c, const struct slr_route *route)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            m->deliveries[route[r].delivery]++;
}

static void enqueued(const struct slr_call *call, const struct slr_watched *w)
{
    struct slr_comm *c = call->comm;
    struct slr_timed *m = open_of(c->lane);
    if (!m)
        return;
    m->pieces = w->pieces;
    m->chunks = w->chunks;
    if (w->route)
        slr_timeline_deliveries(m, c, w->route);
    if (w->status != SLR_OK) /* unread: of what is enqueued in part no time means anything */
        slr_timeline_give_back(atomic_load(&c->timeline), take_open(c->lane));
    else if (w->joined) {
        m->ended = w->fused ? SLR_R_FUSED : SLR_R_RING;
        slr_timeline_hand_in(atomic_load(&c->timeline), take_open(c->lane));
    }
}

/* A gather that one stream has consumed was fused, whatever others do. */
static void joined(const struct slr_lane *lane, enum slr_reason why)
{
    struct slr_timed *m = open_of(lane);
    if (m && m->ended != SLR_R_FUSED)
        m->ended = why;
}

void slr_timeline_leave(struct slr_timed_capture *capture)
{
    if (atomic_fetch_sub(&capture->users, 1) > 1)
        return;
    slr_timing_free(&capture->timed.timing);
    free(capture);
}

static void close_capture(struct slr_timed_capture *capture)
{
    atomic_store(&capture->closed, true);
    slr_timeline_leave(capture);
}

void slr_timeline_close(struct slr_lane *lane)
{
    struct slr_timed *m = take_open(lane);
    if (m && m->timing.stand_in)
        close_capture((struct slr_timed_capture *)m);
    else if (m)
        slr_timeline_hand_in(atomic_load(&lane->comm->timeline), m);
}

/* Stamps the stream before NCCL's real call. NULL: the call is not measured. Non-blocking
 * communicators launch later, and a captured call does not run now. */
static struct slr_timed *nccl_begin(struct slr_comm *c, enum slr_timed_kind kind, uint64_t number, CUstream stream)
{
    /* The context first: the stamps are events of the current one. */
    struct slr_timeline *timeline = !c->nonblocking ? slr_timeline_of(c) : NULL;
    if (!timeline || slr_context_enter(timeline->ctx) != SLR_OK)
        return NULL;
    struct slr_timed *m = slr_stream_captures(stream) ? NULL : slr_timeline_take(timeline, kind, number);
    if (m) {
        m->stream = stream;
        slr_timing_mark(&m->timing, SLR_TRACK_APP, stream);
    }
    slr_shared_leave();
    return m;
}

struct slr_timed *slr_timeline_other_begin(struct slr_comm *c, const char *func, uint64_t number, size_t count,
                                           ncclDataType_t type, CUstream stream)
{
    struct slr_timed *m = nccl_begin(c, SLR_TIMED_OTHER, number, stream);
    if (m) {
        m->func = func;
        m->count = count;
        m->type = type;
    }
    return m;
}

void slr_timeline_nccl_end(struct slr_comm *c, struct slr_timed *timed, ncclResult_t r, size_t bytes)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    if (!timed)
        return;
    /* What NCCL refused did not run: there is nothing to be measured. */
    if (r != ncclSuccess || slr_context_enter(timeline->ctx) != SLR_OK) {
        slr_timeline_give_back(timeline, timed);
        return;
    }
    slr_timing_did(&timed->timing, SLR_TRACK_APP, timed->stream, SLR_SPAN_NCCL, -1, -1, bytes);
    slr_shared_leave();
    slr_timeline_hand_in(timeline, timed);
}

/* Of the call that this thread has with NCCL. */
static _Thread_local struct slr_timed *with_nccl;

/* In a group NCCL begins later, at its end: there is nothing to be measured. */
static void leaves(const struct slr_call *call)
{
    const bool measured = call->passed && !slr_in_group() && slr_timeline_turn(call->passed);
    with_nccl = measured ? nccl_begin(call->comm, SLR_TIMED_PASS, call->passed, call->stream) : NULL;
    if (with_nccl)
        slr_timeline_describe(with_nccl, call);
}

static void left(const struct slr_call *call, ncclResult_t r)
{
    slr_timeline_nccl_end(call->comm, with_nccl, r, call->bytes);
    with_nccl = NULL;
}

const struct slr_watcher slr_timeline_watcher = {.begins = begins,
                                                 .enqueued = enqueued,
                                                 .joined = joined,
                                                 .over = slr_timeline_close,
                                                 .leaves = leaves,
                                                 .left = left};

static void look(struct slr_comm *c, struct slr_timeline *timeline, bool last)
{
    pthread_mutex_lock(&timeline->reading);
    /* At the exit the last look has been taken already, and CUDA may be gone. */
    if (!atomic_load(&over) && slr_context_enter(timeline->ctx) == SLR_OK) {
        slr_timeline_read(c, timeline, last);
        slr_shared_leave();
    }
    pthread_mutex_unlock(&timeline->reading);
}

void slr_timeline_tick(struct slr_comm *c)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    if (timeline)
        look(c, timeline, false);
}

static void free_list(struct slr_timed *list)
{
    for (struct slr_timed *m = list, *next; m; m = next) {
        next = m->next;
        /* CUDA lets events go that a stream will record, but says nothing of a graph in flight. */
        if (m->reason == SLR_R_GRAPH && slr_timing_query(&m->timing) != CUDA_SUCCESS)
            m->timing.created = 0;
        slr_timing_free(&m->timing);
        free(m);
    }
}

void slr_timeline_dispose(struct slr_comm *c)
{
    struct slr_timeline *timeline = atomic_load(&c->timeline);
    if (!timeline)
        return;
    look(c, timeline, true);
    slr_timeline_say_end(c, timeline);
    if (!atomic_load(&over) && slr_context_enter(timeline->ctx) == SLR_OK) {
        /* One that is still open was never joined, and is freed unread. Where CUDA has ended the
         * records are left: their events went with it. */
        slr_timeline_close(c->lane);
        free_list(timeline->expected);
        free_list(timeline->closed);
        free_list(timeline->free);
        slr_device_clock_close(&timeline->clock);
        slr_shared_leave();
        slr_real.cuDevicePrimaryCtxRelease(timeline->device);
    }
    atomic_store(&c->timeline, NULL);
    free(timeline);
}
