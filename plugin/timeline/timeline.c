#include "plugin/timeline/timeline.h"

#include <stdlib.h>
#include <time.h>
#include "base/cu.h"
#include "base/log.h"
#include "base/once.h"
#include "plugin/bootstrap/oob.h"
#include "plugin/util/process.h"
#include "plugin/timeline/timeline_impl.h"

#define EXIT_WAIT_S 1
#define MANY 16 /* records that wait to be read */
#define MANY_MORE 8

static _Atomic bool over; /* the process ends: no CUDA call any more */

bool slr_timeline_turn(uint64_t number)
{
    uint64_t every = slr_get(SLR_S_TRACE);
    return every && (number - 1) % every == 0;
}

static bool lock_for_exit(pthread_mutex_t *m)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += EXIT_WAIT_S;
    return pthread_mutex_timedlock(m, &end) == 0; /* else the reader is in a CUDA call that does not return */
}

static void last_look(struct slr_comm *c)
{
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (!t || !lock_for_exit(&t->reading))
        return;
    if (slr_context_enter(t->ctx) == SLR_OK) {
        slr_timeline_read(c, t, true);
        slr_shared_leave();
    }
    slr_timeline_say_end(c, t);
    pthread_mutex_unlock(&t->reading);
}

/* Registered when the first call is measured, after CUDA has been initialised; what is registered last runs first, so
 * CUDA has not ended here. */
static void at_exit(void)
{
    static struct slr_comm *list[SLR_MANY_COMMS];
    if (slr_process_off())
        return;
    slr_guard++;
    int n = slr_comm_hold_all(list, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        last_look(list[i]);
        slr_comm_put(list[i]);
    }
    atomic_store(&over, true);
    slr_guard--;
}

static bool available(void)
{
    static struct slr_once once;
    static bool yes;
    if (slr_once_begin(&once)) {
        yes = slr_real.cuEventQuery && slr_real.cuEventElapsedTime && atexit(at_exit) == 0;
        if (!yes)
            slr_log(SLR_LOG_WARN, "trace_off", "msg=%s",
                    "SLIPRING_TRACE has no effect: the driver has no cuEventElapsedTime, or no exit handler is left");
        slr_once_end(&once);
    }
    return yes;
}

static bool open_on_device(const struct slr_comm *c, struct slr_timeline *t)
{
    int dev = 0;
    if (slr_real.ncclCommCuDevice(c->nccl, &dev) != ncclSuccess || SLR_CU(cuDeviceGet, &t->device, dev) != SLR_OK ||
        SLR_CU(cuDevicePrimaryCtxRetain, &t->ctx, t->device) != SLR_OK)
        return false;
    bool open = false;
    if (slr_context_enter(t->ctx) == SLR_OK) {
        open = slr_device_clock_open(&t->clock) == SLR_OK;
        slr_shared_leave();
    }
    if (!open)
        slr_real.cuDevicePrimaryCtxRelease(t->device);
    return open;
}

static struct slr_timeline *make(const struct slr_comm *c)
{
    struct slr_timeline *t = calloc(1, sizeof *t);
    if (!t || !open_on_device(c, t)) {
        free(t);
        return NULL;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->reading, NULL);
    t->closed_end = &t->closed;
    return t;
}

struct slr_timeline *slr_timeline_of(struct slr_comm *c)
{
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (atomic_load(&over))
        return NULL;
    if (t || c->timeline_counts.refused || !available())
        return t;
    t = make(c);
    if (!t) {
        c->timeline_counts.refused = true;
        slr_log(SLR_LOG_WARN, "trace_off", "comm=%s crank=%d msg=%s", c->name, c->rank,
                "the communicator is not measured: events or a stream could not be made");
        return NULL;
    }
    slr_timeline_say_start(c, t);
    atomic_store(&c->timeline, t);
    return t;
}

struct slr_timed *slr_timeline_take(struct slr_timeline *t, enum slr_timed_kind kind, uint64_t number)
{
    atomic_fetch_add_explicit(&t->sampled, 1, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    struct slr_timed *m = t->free;
    if (m)
        t->free = m->next;
    else if (t->made < SLR_TIMELINE_RECORDS && t->events < SLR_TIMELINE_EVENTS && (m = calloc(1, sizeof *m)))
        t->made++;
    unsigned taken = t->taken += m != NULL;
    pthread_mutex_unlock(&t->lock);
    if (taken >= MANY && taken % MANY_MORE == 0)
        slr_oob_wake_self(); /* more than its ticks can keep up with */
    if (!m) {
        atomic_fetch_add_explicit(&t->dropped, 1, memory_order_relaxed);
        return NULL;
    }
    *m = (struct slr_timed){
        .timing = m->timing, .counted = m->counted, .kind = kind, .number = number, .ended = SLR_R_RING};
    slr_timing_begin(&m->timing);
    return m;
}

void slr_timeline_hand_in(struct slr_timeline *t, struct slr_timed *m)
{
    m->next = NULL;
    pthread_mutex_lock(&t->lock);
    t->events += m->timing.created - m->counted;
    m->counted = m->timing.created;
    *t->closed_end = m;
    t->closed_end = &m->next;
    pthread_mutex_unlock(&t->lock);
}

void slr_timeline_give_back(struct slr_timeline *t, struct slr_timed *m)
{
    pthread_mutex_lock(&t->lock);
    t->taken--;
    m->next = t->free;
    t->free = m;
    pthread_mutex_unlock(&t->lock);
}

void slr_timeline_begin(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    c->ring.timing = NULL;
    if (!slr_timeline_turn(call->number))
        return;
    struct slr_timeline *t = slr_timeline_of(c);
    struct slr_timed *m = t ? slr_timeline_take(t, SLR_TIMED_RING, call->number) : NULL;
    if (!m)
        return;
    m->reason = SLR_R_RING;
    m->shard = call->shard;
    m->count = call->count;
    m->type = call->type;
    m->in_place = slr_call_in_place(call);
    m->stream = call->stream;
    m->send = call->send;
    m->recv = call->recv;
    t->open = m;
    c->ring.timing = &m->timing;
    slr_timing_mark(&m->timing, SLR_LANE_APP, call->stream);
}

static struct slr_timed *take_open(struct slr_comm *c)
{
    struct slr_timeline *t = atomic_load_explicit(&c->timeline, memory_order_relaxed);
    struct slr_timed *m = t && c->ring.timing ? t->open : NULL;
    c->ring.timing = NULL;
    return m;
}

void slr_timeline_enqueued(struct slr_comm *c, const struct slr_gather *g, enum slr_status s)
{
    if (!c->ring.timing)
        return;
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (s != SLR_OK) {
        slr_timeline_give_back(t, take_open(c));
        return;
    }
    t->open->pieces = g->plan.pieces;
    t->open->chunks = g->plan.chunks;
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            t->open->deliveries[g->route[r].delivery]++;
}

/* A gather that one stream has consumed was fused, whatever others do. */
void slr_timeline_joined(const struct slr_comm *c, enum slr_reason why)
{
    if (!c->ring.timing)
        return;
    struct slr_timed *m = atomic_load(&c->timeline)->open;
    if (m->ended != SLR_R_FUSED)
        m->ended = why;
}

void slr_timeline_close(struct slr_comm *c)
{
    struct slr_timed *m = c->ring.timing ? take_open(c) : NULL;
    if (m)
        slr_timeline_hand_in(atomic_load(&c->timeline), m);
}

static void look(struct slr_comm *c, struct slr_timeline *t, bool last)
{
    pthread_mutex_lock(&t->reading);
    if (!atomic_load(&over) && slr_context_enter(t->ctx) == SLR_OK) {
        slr_timeline_read(c, t, last);
        slr_shared_leave();
    }
    pthread_mutex_unlock(&t->reading);
}

void slr_timeline_tick(struct slr_comm *c)
{
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (t)
        look(c, t, false);
}

static void free_list(struct slr_timed *list)
{
    for (struct slr_timed *m = list, *next; m; m = next) {
        next = m->next;
        slr_timing_free(&m->timing);
        free(m);
    }
}

void slr_timeline_dispose(struct slr_comm *c)
{
    struct slr_timeline *t = atomic_load(&c->timeline);
    if (!t)
        return;
    look(c, t, true);
    slr_timeline_say_end(c, t);
    if (!atomic_load(&over) && slr_context_enter(t->ctx) == SLR_OK) {
        slr_timeline_close(c);
        free_list(t->closed);
        free_list(t->free);
        slr_device_clock_close(&t->clock);
        slr_shared_leave();
        slr_real.cuDevicePrimaryCtxRelease(t->device);
    }
    atomic_store(&c->timeline, NULL);
    free(t);
}
