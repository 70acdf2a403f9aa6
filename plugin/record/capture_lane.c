/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes of captures. */
#include "plugin/record/record.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/real.h"
#include "base/status.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/graphs/graphs.h"
#include "plugin/graphs/recorded.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"
#include "plugin/record/record_impl.h"

/* A lane for one capture. */
struct slr_capture_lane {
    struct slr_lane lane; /* first */
    struct slr_order order;
    struct slr_pending pending;
    unsigned long long capture; /* that it serves; 0: none now */
    unsigned calls;
    _Atomic bool failed; /* the capture has; the log says so once */
    _Atomic bool drawn;  /* its ring's streams are in the capture */
    struct slr_capture_lane *next;
};

/* Under the lock: the list, and which capture each serves. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_capture_lane *list;
static _Atomic unsigned serving;

static struct slr_capture_lane *capture_lane(struct slr_lane *lane)
{
    return (struct slr_capture_lane *)lane;
}

/* The capture has, nothing else. */
static void failed(struct slr_lane *lane, enum slr_status status, const char *what)
{
    if (!atomic_exchange(&capture_lane(lane)->failed, true))
        slr_log(SLR_LOG_ERROR, "capture_failed", "comm=%s crank=%d status=%s msg=%s", lane->comm->name,
                lane->comm->rank, slr_status_name(status), what);
}

/* It is in the capture, or in none and may be taken in. */
static bool takes(const struct slr_lane *lane, CUstream stream)
{
    const struct slr_capture_lane *r = (const struct slr_capture_lane *)lane;
    const unsigned long long capture = slr_graph_capture(stream, NULL);
    return capture ? capture == r->capture : !slr_stream_captures(stream);
}

/* Nothing is tried in a capture. */
static uint32_t by_pace(const struct slr_lane *lane, const struct slr_member *m, const struct slr_gemm *gemm, bool on_a)
{
    (void)lane, (void)m, (void)gemm, (void)on_a;
    return 0;
}

static void fusing(struct slr_lane *lane, const struct slr_member *m, enum slr_fusing what, CUstream stream)
{
    (void)m;
    if (what == SLR_FUSING_DONE)
        slr_recorded_in_parts(slr_graph_captured_into(stream), lane->comm);
}

static const struct slr_lane_kind captured = {.failed = failed, .takes = takes, .parts = by_pace, .fusing = fusing};

static enum slr_status open_ring(struct slr_lane *lane)
{
    SLR_TRY(slr_shared_enter(&lane->comm->shared));
    enum slr_status s = slr_ring_open(&lane->ring);
    slr_shared_leave();
    return s;
}

static struct slr_capture_lane *new_lane(struct slr_comm *c)
{
    struct slr_capture_lane *r = calloc(1, sizeof *r);
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

/* The words may be others than in the capture before. */
static void begin(struct slr_capture_lane *r, const struct slr_ring *from, unsigned long long capture)
{
    struct slr_ring *ring = &r->lane.ring;
    ring->flags = from->flags;
    ring->dflags = from->dflags;
    ring->code = from->code;
    ring->now.carrying = ring->now.restated = ring->behind = false;
    ring->entries = 0;
    memset(&r->order, 0, sizeof r->order);
    atomic_store(&r->failed, false);
    r->calls = 0;
    atomic_store(&r->drawn, false);
    r->capture = capture;
}

/* The one that serves the capture, or a free one, or a new one. */
static struct slr_capture_lane *serve(struct slr_comm *c, unsigned long long capture)
{
    pthread_mutex_lock(&lock);
    struct slr_capture_lane *unused = NULL, *r = list;
    for (; r && !(r->lane.comm == c && r->capture == capture); r = r->next)
        if (r->lane.comm == c && !r->capture)
            unused = r;
    pthread_mutex_unlock(&lock);
    if (r)
        return r;
    struct slr_capture_lane *fresh = unused ? NULL : new_lane(c);
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

/* Those that a call is about to use, as others may be about to be connected. */
static void know_slots(struct slr_slots *to, const struct slr_slots *from)
{
    atomic_store(&to->bytes, atomic_load(&from->bytes));
    memcpy(to->at, from->at, sizeof to->at);
    to->twin = from->twin;
}

struct slr_lane *slr_capture_lane_of(struct slr_comm *c, unsigned long long capture, unsigned slots)
{
    struct slr_capture_lane *r = serve(c, capture);
    if (r)
        know_slots(&r->lane.ring.slots[slots], &c->lane->ring.slots[slots]);
    return r ? &r->lane : NULL;
}

bool slr_capture_lane_enter(struct slr_lane *lane)
{
    return capture_lane(lane)->calls++ == 0;
}

void slr_capture_lane_drawn(struct slr_lane *lane)
{
    atomic_store(&capture_lane(lane)->drawn, true);
}

/* ---- the end of a capture ---- */

/* Streams of the lane that the program has not made anybody wait for. */
static void take_back(struct slr_capture_lane *r, CUstream stream)
{
    struct slr_ring *ring = &r->lane.ring;
    const CUstream own[] = {ring->pull, ring->tail, ring->publish, ring->own, ring->carrier};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (slr_graph_capture(own[i], NULL) == r->capture) {
            slr_real.cuEventRecord(ring->entry, own[i]);
            slr_real.cuStreamWaitEvent(stream, ring->entry, 0);
        }
}

static struct slr_capture_lane *next_of(unsigned long long capture, const struct slr_capture_lane *after)
{
    pthread_mutex_lock(&lock);
    struct slr_capture_lane *r = after ? after->next : list;
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
    for (struct slr_capture_lane *r = next_of(capture, NULL); r; r = next_of(capture, r)) {
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
static bool has_ended(const struct slr_capture_lane *r, unsigned long long capture)
{
    return capture ? r->capture == capture
                   : r->capture && atomic_load(&r->drawn) && !slr_stream_captures(r->lane.ring.pull);
}

void slr_record_ended(unsigned long long capture)
{
    if (!atomic_load(&serving))
        return;
    pthread_mutex_lock(&lock);
    for (struct slr_capture_lane *r = list; r; r = r->next)
        if (has_ended(r, capture)) {
            r->capture = 0;
            atomic_fetch_sub(&serving, 1);
        }
    pthread_mutex_unlock(&lock);
}

/* Off the list. */
static struct slr_capture_lane *take_lane(const struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    struct slr_capture_lane **at = &list;
    while (*at && (*at)->lane.comm != c)
        at = &(*at)->next;
    struct slr_capture_lane *r = *at;
    if (r)
        *at = r->next;
    if (r && r->capture)
        atomic_fetch_sub(&serving, 1);
    pthread_mutex_unlock(&lock);
    return r;
}

void slr_record_close(struct slr_comm *c)
{
    for (struct slr_capture_lane *r; (r = take_lane(c)) != NULL; free(r)) {
        slr_lane_lock(&r->lane);
        slr_pending_join(&r->lane, SLR_R_JOIN_DESTROY, "the communicator's end"); /* in a capture that goes on */
        slr_lane_unlock(&r->lane);
        slr_ring_close(&r->lane.ring);
        pthread_mutex_destroy(&r->lane.lock);
    }
}
