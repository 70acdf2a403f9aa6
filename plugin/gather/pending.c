#include "plugin/gather/pending_impl.h"

#include <time.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/timeline/timeline.h"

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct slr_comm *list;

/* ---- locks ---- */

void slr_table_lock(void)
{
    pthread_mutex_lock(&table);
}

void slr_table_unlock(void)
{
    pthread_mutex_unlock(&table);
}

struct slr_comm *slr_pending_find(bool (*match)(struct slr_comm *c, void *ctx), void *ctx)
{
    slr_table_lock();
    struct slr_comm *c = list;
    while (c && !match(c, ctx))
        c = c->pending->next;
    if (c) /* it can not be disposed of before it has left the list, which takes the table lock */
        slr_comm_hold(c);
    slr_table_unlock();
    return c;
}

/* ---- streams ---- */

/* Whether the stream synchronises with the legacy default stream. Yes, when it can not be told. */
static bool blocking(CUstream stream)
{
    unsigned flags = 0;
    return slr_stream_is_default(stream) || !slr_real.cuStreamGetFlags ||
           slr_real.cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
}

/* ---- holders ---- */

struct slr_holder *slr_pending_holder(struct slr_comm *c, CUstream stream)
{
    for (unsigned i = 0; i < c->pending->holders; i++)
        if (c->pending->holder[i].stream == stream)
            return &c->pending->holder[i];
    return NULL;
}

static void add_holder(struct slr_comm *c, struct slr_holder h)
{
    c->pending->handed = !h.origin;
    c->pending->holder[c->pending->holders++] = h;
}

void slr_pending_hold(struct slr_comm *c, CUstream stream, bool origin)
{
    struct slr_holder h = {.stream = stream, .blocking = blocking(stream), .origin = origin};
    slr_table_lock();
    add_holder(c, h);
    slr_table_unlock();
}

void slr_pending_add(struct slr_comm *c)
{
    CUstream stream = slr_stream_name(c->pending->gather.stream, false);
    struct slr_holder h = {.stream = stream, .blocking = blocking(stream), .origin = true};
    slr_table_lock();
    c->pending->active = true;
    c->pending->holders = c->pending->carriers = 0;
    add_holder(c, h);
    c->pending->next = list;
    list = c;
    slr_table_unlock();
    atomic_fetch_add(&slr_gate_word, 1);
}

static void end(struct slr_comm *c)
{
    slr_timeline_close(c);
    slr_table_lock();
    struct slr_comm **at = &list;
    while (*at != c)
        at = &(*at)->pending->next;
    *at = c->pending->next;
    c->pending->active = false;
    c->pending->holders = c->pending->carriers = 0;
    slr_table_unlock();
    atomic_fetch_sub(&slr_gate_word, 1);
}

static void note_join(const struct slr_comm *c, enum slr_reason why, const char *who)
{
    uint64_t key = slr_mix(slr_mix((uint64_t)why, c->pending->gather.plan.shard), slr_comm_id(c) ^ 1);
    slr_count(why);
    slr_timeline_joined(c, why);
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(key))
        slr_log(SLR_LOG_INFO, "joined", "comm=%s crank=%d shard=%zu reason=%s by=%s", c->name, c->rank,
                c->pending->gather.plan.shard, slr_reason_name(why), who);
}

/* `exposed`: the time that the stream stands still counts as not hidden (timeline.h). */
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
    return h->origin && c->pending->handed;
}

/* The holder waits for the gather, or has consumed it. */
static void let_go(struct slr_comm *c, struct slr_holder *h)
{
    slr_table_lock();
    *h = c->pending->holder[--c->pending->holders];
    slr_table_unlock();
    if (c->pending->handed && c->pending->holders == 1 && c->pending->holder[0].origin) {
        make_wait(c, c->pending->holder[0].stream, false);
        end(c);
    } else if (c->pending->holders == 0) {
        end(c);
    }
}

void slr_pending_consumed(struct slr_comm *c, CUstream stream)
{
    let_go(c, slr_pending_holder(c, stream));
}

/* A range for profiling tools, when there is something left to wait for. */
static bool nvtx_join(struct slr_comm *c, enum slr_reason why)
{
    return slr_nvtx_on() && !slr_comm_idle(c) &&
           slr_nvtx_begin("join:", slr_reason_name(why), c->pending->gather.plan.shard * (uint64_t)c->nranks);
}

void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who)
{
    if (!c->pending->active)
        return;
    bool marked = nvtx_join(c, why);
    for (unsigned i = 0; i < c->pending->holders; i++)
        make_wait(c, c->pending->holder[i].stream, !handed_on(c, &c->pending->holder[i]));
    slr_nvtx_end(marked);
    note_join(c, why, who);
    end(c);
}

/* ---- what an operation could observe ---- */

/* An operation on a stream, and what it spares. */
struct operation {
    CUstream stream;
    CUcontext ctx; /* that the stream is of; a default stream exists in each context. NULL: any */
    bool is_default;
    enum { UNKNOWN, NO, YES } blocking; /* asked for when it is needed: `ask` */
    bool ask;
    enum slr_spare spare;
    const struct slr_comm *of;
};

static struct operation operation_on(CUstream stream, enum slr_spare spare, const struct slr_comm *of)
{
    struct operation op = {.stream = stream, .is_default = slr_stream_is_default(stream), .spare = spare, .of = of};
    if (op.is_default)
        op.ctx = slr_stream_context(stream);
    return op;
}

/* A stream of the legacy default kind is held: whether the operation's stream synchronises with it. */
static bool synchronises(struct operation *op, const struct slr_comm *c)
{
    op->ask = op->ask || op->blocking == UNKNOWN;
    return op->blocking == YES && (!op->ctx || op->ctx == c->shared.ctx);
}

static bool observes(struct operation *op, const struct slr_comm *c, const struct slr_holder *h)
{
    if (op->is_default && op->ctx && op->ctx != c->shared.ctx)
        return false;
    if (h->stream == op->stream)
        return !(op->spare == SLR_SPARE_OWN && c == op->of) && !(op->spare == SLR_SPARE_HANDED && !h->origin);
    if (op->is_default)
        return h->blocking;
    return !h->stream && synchronises(op, c);
}

static struct slr_holder *observed(struct operation *op, struct slr_comm *c)
{
    for (unsigned i = 0; i < c->pending->holders; i++)
        if (observes(op, c, &c->pending->holder[i]))
            return &c->pending->holder[i];
    return NULL;
}

static bool is_observed(struct slr_comm *c, void *op)
{
    return observed(op, c) != NULL;
}

/* The next communicator with a holder that the operation could observe. What only the driver knows of the operation's
 * stream is asked at the first communicator for which it matters. */
static struct slr_comm *next_observed(struct operation *op)
{
    struct slr_comm *c = slr_pending_find(is_observed, op);
    if (c || !op->ask)
        return c;
    op->ask = false;
    op->blocking = blocking(op->stream) ? YES : NO;
    op->ctx = slr_stream_context(op->stream);
    return slr_pending_find(is_observed, op);
}

/* Under the communicator's lock. */
static void join_observed(struct slr_comm *c, struct operation *op, enum slr_reason why, const char *who)
{
    struct slr_holder *h = observed(op, c);
    if (!h) /* another thread did it */
        return;
    bool marked = nvtx_join(c, why);
    note_join(c, why, who);
    for (; h; h = observed(op, c)) {
        make_wait(c, h->stream, why != SLR_R_JOIN_NEXT_GATHER || !handed_on(c, h));
        let_go(c, h);
    }
    slr_nvtx_end(marked);
}

void slr_pending_join_observed(CUstream stream, enum slr_spare spare, const struct slr_comm *of, enum slr_reason why,
                               const char *who)
{
    struct operation op = operation_on(stream, spare, of);
    for (struct slr_comm *c; (c = next_observed(&op)) != NULL;) {
        slr_comm_lock(c);
        join_observed(c, &op, why, who);
        slr_comm_unlock(c);
        slr_comm_put(c);
    }
}

void slr_pending_join_stream(CUstream stream, bool per_thread, enum slr_reason why, const char *who)
{
    slr_guard++;
    slr_pending_join_observed(slr_stream_name(stream, per_thread), SLR_SPARE_NONE, NULL, why, who);
    slr_guard--;
}

static bool in_context(struct slr_comm *c, void *ctx)
{
    return !ctx || c->shared.ctx == ctx;
}

void slr_pending_join_all(enum slr_reason why, const char *who)
{
    CUcontext ctx = NULL;
    slr_guard++;
    slr_real.cuCtxGetCurrent(&ctx);
    for (struct slr_comm *c; (c = slr_pending_find(in_context, ctx)) != NULL;) {
        slr_comm_lock(c);
        slr_pending_join(c, why, who);
        slr_comm_unlock(c);
        slr_comm_put(c);
    }
    slr_guard--;
}
