#include "plugin/pending_impl.h"

#include <pthread.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"
#include "base/mark.h"
#include "plugin/trace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_comm *list;

void slr_pending_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slr_pending_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct slr_comm *slr_pending_first(void)
{
    return list;
}

CUstream slr_stream_name(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_LEGACY)
        return NULL;
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

bool slr_stream_is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_PER_THREAD;
}

/* Whether the stream synchronises with the legacy default stream. Yes, when it can not be told. */
static bool blocking(CUstream stream)
{
    unsigned flags = 0;
    return slr_stream_is_default(stream) || !slr_real.cuStreamGetFlags ||
           slr_real.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
}

struct slr_holder *slr_pending_holder(struct slr_comm *c, CUstream stream)
{
    for (unsigned i = 0; i < c->pending.holders; i++)
        if (c->pending.holder[i].stream == stream)
            return &c->pending.holder[i];
    return NULL;
}

void slr_pending_hold(struct slr_comm *c, CUstream stream, bool origin)
{
    c->pending.handed = !origin;
    c->pending.holder[c->pending.holders++] =
        (struct slr_holder){.stream = stream, .blocking = blocking(stream), .origin = origin};
}

void slr_pending_add(struct slr_comm *c)
{
    c->pending.active = true;
    c->pending.holders = c->pending.carriers = 0;
    slr_pending_hold(c, slr_stream_name(c->pending.gather.stream, false), true);
    c->pending.next = list;
    list = c;
    atomic_fetch_add(&slr_gate_word, 1);
}

static void end(struct slr_comm *c)
{
    slr_trace_close(c);
    struct slr_comm **at = &list;
    while (*at != c)
        at = &(*at)->pending.next;
    *at = c->pending.next;
    c->pending.active = false;
    c->pending.holders = c->pending.carriers = 0;
    atomic_fetch_sub(&slr_gate_word, 1);
}

static void note_join(const struct slr_comm *c, enum slr_reason why, const char *who)
{
    uint64_t key = slr_mix(slr_mix((uint64_t)why, c->pending.gather.plan.shard), slr_comm_id(c) ^ 1);
    slr_count(why);
    slr_trace_joined(c, why);
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(key))
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s", c->name, c->rank,
                c->pending.gather.plan.shard, slr_reason_name(why), who);
}

/* `exposed`: the time that the stream stands still counts as not hidden (trace.h). */
static void make_wait(struct slr_comm *c, CUstream stream, bool exposed)
{
    enum slr_status s = slr_shared_enter(&c->shared);
    if (s == SLR_OK) {
        s = (exposed ? slr_ring_join_measured : slr_ring_join)(&c->ring, stream);
        slr_shared_leave();
    }
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the application's stream could not be joined with the ring");
}

/* The stream of the call, after another one has taken the gather over: what is computed does not wait there. */
static bool handed_on(const struct slr_comm *c, const struct slr_holder *h)
{
    return h->origin && c->pending.handed;
}

/* The holder waits for the gather, or has consumed it. */
static void let_go(struct slr_comm *c, struct slr_holder *h)
{
    *h = c->pending.holder[--c->pending.holders];
    if (c->pending.handed && c->pending.holders == 1 && c->pending.holder[0].origin) {
        make_wait(c, c->pending.holder[0].stream, false);
        c->pending.holders = 0;
    }
    if (c->pending.holders == 0)
        end(c);
}

void slr_pending_consumed(struct slr_comm *c, CUstream stream)
{
    let_go(c, slr_pending_holder(c, stream));
}

/* A range for profiling tools, when there is something left to wait for. */
static bool mark_join(struct slr_comm *c, enum slr_reason why)
{
    return slr_marking() && !slr_comm_idle(c) &&
           slr_mark_begin("join:", slr_reason_name(why), c->pending.gather.plan.shard * (uint64_t)c->nranks);
}

void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who)
{
    if (!c->pending.active)
        return;
    bool marked = mark_join(c, why);
    for (unsigned i = 0; i < c->pending.holders; i++)
        make_wait(c, c->pending.holder[i].stream, !handed_on(c, &c->pending.holder[i]));
    slr_mark_end(marked);
    note_join(c, why, who);
    end(c);
}

/* An operation on a stream, and what it spares. */
struct operation {
    CUstream stream;
    bool is_default;
    enum slr_spare spare;
    const struct slr_comm *of;
};

static bool observes(const struct operation *op, const struct slr_comm *c, const struct slr_holder *h)
{
    if (h->stream == op->stream)
        return !(op->spare == SLR_SPARE_OWN && c == op->of) && !(op->spare == SLR_SPARE_HANDED && !h->origin);
    if (op->is_default)
        return h->blocking;
    return !h->stream && blocking(op->stream);
}

static struct slr_holder *observed(const struct operation *op, struct slr_comm *c)
{
    for (unsigned i = 0; i < c->pending.holders; i++)
        if (observes(op, c, &c->pending.holder[i]))
            return &c->pending.holder[i];
    return NULL;
}

void slr_pending_join_observed(CUstream stream, enum slr_spare spare, const struct slr_comm *of, enum slr_reason why,
                               const char *who)
{
    struct operation op = {stream, slr_stream_is_default(stream), spare, of};
    for (struct slr_comm *c = list, *next; c; c = next) {
        next = c->pending.next;
        struct slr_holder *h = observed(&op, c);
        if (!h)
            continue;
        bool marked = mark_join(c, why);
        note_join(c, why, who);
        for (; h; h = observed(&op, c)) {
            make_wait(c, h->stream, why != SLR_R_JOIN_NEXT_GATHER || !handed_on(c, h));
            let_go(c, h);
        }
        slr_mark_end(marked);
    }
}

void slr_pending_join_stream(CUstream stream, bool per_thread, enum slr_reason why, const char *who)
{
    slr_guard++;
    slr_pending_lock();
    slr_pending_join_observed(slr_stream_name(stream, per_thread), SLR_SPARE_NONE, NULL, why, who);
    slr_pending_unlock();
    slr_guard--;
}

void slr_pending_join_all(enum slr_reason why, const char *who)
{
    slr_guard++;
    slr_pending_lock();
    while (list)
        slr_pending_join(list, why, who);
    slr_pending_unlock();
    slr_guard--;
}
