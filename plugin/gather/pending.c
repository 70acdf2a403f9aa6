/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/pending_impl.h"

#include <time.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/gather/order.h"
#include "plugin/timeline/timeline.h"

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct slr_comm *list; /* of pending communicators, under the table lock */

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

static void hold(struct slr_comm *c, CUstream stream, bool partner)
{
    /* The driver is asked before the table lock is taken. */
    struct slr_holder h = {.stream = stream, .blocking = blocking(stream), .partner = partner};
    slr_table_lock();
    c->pending->followed |= !partner;
    c->pending->holder[c->pending->holders++] = h;
    slr_table_unlock();
}

void slr_pending_follow(struct slr_comm *c, CUstream stream)
{
    hold(c, stream, false);
}

void slr_pending_add(struct slr_comm *c)
{
    CUstream stream = slr_stream_name(c->pending->gather.stream, false);
    struct slr_holder h = {.stream = stream, .blocking = blocking(stream), .origin = true};
    slr_table_lock();
    c->pending->active = true;
    c->pending->carried = c->pending->followed = false;
    c->pending->holder[0] = h;
    c->pending->holders = 1;
    c->pending->carriers = 0;
    c->pending->next = list;
    list = c;
    slr_table_unlock();
    /* From here on every hooked driver call takes the slow way, which looks at the list. */
    atomic_fetch_add(&slr_gate_word, 1);
}

/* The gather has no holders that are not joined: it is not pending any more. */
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

/* The program computes on a follower, not here: what this stream waits is not counted as exposed.
 */
static bool is_followed_origin(const struct slr_comm *c, const struct slr_holder *h)
{
    return h->origin && c->pending->followed;
}

/* No holder is left that the program is likely to compute on: see pending.h. */
static bool rest_is_idle(const struct slr_comm *c)
{
    for (unsigned i = 0; i < c->pending->holders; i++)
        if (!c->pending->holder[i].partner && !is_followed_origin(c, &c->pending->holder[i]))
            return false;
    return true;
}

/* The holder waits for the gather, or has consumed it. */
static void drop_holder(struct slr_comm *c, struct slr_holder *h)
{
    slr_table_lock();
    *h = c->pending->holder[--c->pending->holders];
    slr_table_unlock();
    if (!rest_is_idle(c))
        return;
    for (unsigned i = 0; i < c->pending->holders; i++)
        make_wait(c, c->pending->holder[i].stream, false);
    end(c);
}

void slr_pending_consumed(struct slr_comm *c, CUstream stream)
{
    drop_holder(c, slr_pending_holder(c, stream));
}

/* An NVTX range, when there is something to wait for. */
static bool nvtx_join(struct slr_comm *c, enum slr_reason why)
{
    return slr_nvtx_on() && !slr_comm_idle(c) &&
           slr_nvtx_begin("join:", slr_reason_name(why), c->pending->gather.plan.shard * (uint64_t)c->nranks);
}

void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who)
{
    if (!c->pending->active)
        return;
    bool nvtx = nvtx_join(c, why);
    /* No lock of the table: holders change only with the communicator's lock held, too. */
    for (unsigned i = 0; i < c->pending->holders; i++)
        make_wait(c, c->pending->holder[i].stream, !is_followed_origin(c, &c->pending->holder[i]));
    slr_nvtx_end(nvtx);
    note_join(c, why, who);
    end(c);
}

void slr_pending_share(struct slr_comm *c, CUstream stream)
{
    CUstream name = slr_stream_name(stream, false);
    slr_comm_lock(c);
    /* A stream of the program's may now see the gather's end behind another one than its own. */
    c->order->several = true;
    if (c->pending->active && !slr_pending_holder(c, name)) {
        if (c->pending->holders < SLR_HOLDERS && name != CU_STREAM_PER_THREAD)
            hold(c, name, true);
        else
            slr_pending_join(c, SLR_R_JOIN_GROUP, "ncclGroupEnd");
    }
    slr_comm_unlock(c);
}

/* ---- what an operation could observe ---- */

/* An operation on a stream, and which holders it need not join. */
struct operation {
    CUstream stream;
    CUcontext ctx; /* that the stream is of; a default stream exists in each context. NULL: any */
    bool is_default;
    enum { UNKNOWN, NO, YES } blocking; /* only the driver knows */
    bool ask;                           /* that it has to be asked */
    enum slr_except except;
    const struct slr_comm *of;
};

static struct operation operation_on(CUstream stream, enum slr_except except, const struct slr_comm *of)
{
    struct operation op = {.stream = stream, .is_default = slr_stream_is_default(stream), .except = except, .of = of};
    if (op.is_default)
        op.ctx = slr_stream_context(stream);
    return op;
}

/* The legacy default stream is a holder: whether the operation's stream synchronises with it. This
 * runs under the table lock, where the driver is not called, so an unknown answer is noted in `ask`
 * and counts as no for now. */
static bool synchronises(struct operation *op, const struct slr_comm *c)
{
    op->ask = op->ask || op->blocking == UNKNOWN;
    return op->blocking == YES && (!op->ctx || op->ctx == c->shared.ctx);
}

/* The rules of pending.h's table. CUDA's legacy default stream and all streams that are not
 * non-blocking wait for each other. */
static bool observes(struct operation *op, const struct slr_comm *c, const struct slr_holder *h)
{
    if (op->is_default && op->ctx && op->ctx != c->shared.ctx)
        return false;
    if (h->stream == op->stream)
        return !(op->except == SLR_EXCEPT_OWN && c == op->of) && !(op->except == SLR_EXCEPT_FOLLOWERS && !h->origin);
    if (op->is_default)
        return h->blocking;
    /* Stream 0 names the legacy default stream. */
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

/* The next communicator with a holder that the operation could observe. The driver is asked about
 * the operation's stream at the first communicator for which that matters, and outside of the table
 * lock: programs with no holder on a default stream never pay for it. */
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
    if (!h) /* another thread has joined it between the two locks */
        return;
    bool nvtx = nvtx_join(c, why);
    note_join(c, why, who);
    /* Looked up anew each time: dropping a holder moves another one into its place. */
    for (; h; h = observed(op, c)) {
        make_wait(c, h->stream, why != SLR_R_JOIN_NEXT_GATHER || !is_followed_origin(c, h));
        drop_holder(c, h);
    }
    slr_nvtx_end(nvtx);
}

void slr_pending_join_observed(CUstream stream, enum slr_except except, const struct slr_comm *of, enum slr_reason why,
                               const char *who)
{
    struct operation op = operation_on(stream, except, of);
    /* One communicator at a time, because two communicators' locks are never held together. */
    for (struct slr_comm *c; (c = next_observed(&op)) != NULL;) {
        slr_comm_lock(c);
        join_observed(c, &op, why, who);
        slr_comm_unlock(c);
        slr_comm_put(c);
    }
}

void slr_pending_join_stream(CUstream stream, bool per_thread, enum slr_reason why, const char *who)
{
    /* The joins call the driver; its hooks must not come back here. */
    slr_guard++;
    slr_pending_join_observed(slr_stream_name(stream, per_thread), SLR_EXCEPT_NONE, NULL, why, who);
    slr_guard--;
}

/* Without a current context nothing is known of what is observed: all communicators match. */
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
