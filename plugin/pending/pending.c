/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/comm.h"
#include "cache/captures.h"
#include "plugin/pending/pending_state.h"

#include <time.h>
#include "base/nvtx.h"
#include "base/status.h"
#include "kernels/gemm.h"
#include "plugin/comm/call.h"
#include "plugin/pending/order.h"

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct slr_lane *list; /* of those with a pending gather, the latest first; under the table lock */
static uint64_t serial;       /* of the latest; likewise */

/* A bit for each stream that is a holder; all, when a default stream is one. Changed under the table
 * lock; read without it by operations, which most often are on other streams. What other threads
 * change meanwhile has no order with them. */
static _Atomic uint64_t held;

/* ---- locks ---- */

void slr_table_lock(void)
{
    pthread_mutex_lock(&table);
}

void slr_table_unlock(void)
{
    pthread_mutex_unlock(&table);
}

struct slr_lane *slr_pending_find(bool (*match)(struct slr_lane *lane, void *ctx), void *ctx)
{
    if ((atomic_load(&slr_gate_word) & ~SLR_GATE_UNRESOLVED) == 0)
        return NULL; /* what other threads add meanwhile has no order with this call */
    slr_table_lock();
    struct slr_lane *lane = list;
    while (lane && !match(lane, ctx))
        lane = lane->pending->next;
    if (lane) /* it can not be disposed of before it has left the list, which takes the table lock */
        slr_comm_hold(lane->comm);
    slr_table_unlock();
    return lane;
}

/* ---- streams ---- */

static uint64_t bit_of(CUstream stream)
{
    uintptr_t number = (uintptr_t)stream; /* an address; its low bits are 0 */
    return slr_stream_is_default(stream) ? UINT64_MAX : 1ull << ((number >> 4 ^ number >> 10 ^ number >> 16) & 63);
}

/* Under the table lock, after each change of holders. */
static void note_held(void)
{
    uint64_t bits = 0;
    for (const struct slr_lane *lane = list; lane; lane = lane->pending->next)
        for (unsigned i = 0; i < lane->pending->holders; i++)
            bits |= bit_of(lane->pending->holder[i].stream);
    atomic_store(&held, bits);
}

bool slr_pending_may_observe(CUstream stream)
{
    return (atomic_load(&held) & bit_of(stream)) != 0;
}

/* Whether the stream synchronises with the legacy default stream. */
static bool blocking(CUstream stream)
{
    return slr_stream_is_default(stream) || slr_stream_facts(stream).blocking;
}

/* What is captured is not ordered with the legacy default stream. */
static bool holds_default(const struct slr_lane *lane, CUstream stream)
{
    return lane->kind->runs && blocking(stream);
}

/* ---- holders ---- */

struct slr_holder *slr_pending_holder(struct slr_lane *lane, CUstream stream)
{
    for (unsigned i = 0; i < lane->pending->holders; i++)
        if (lane->pending->holder[i].stream == stream)
            return &lane->pending->holder[i];
    return NULL;
}

static void hold(struct slr_lane *lane, CUstream stream, bool partner)
{
    /* The driver is asked before the table lock is taken. */
    struct slr_holder h = {.stream = stream, .blocking = holds_default(lane, stream), .partner = partner};
    slr_table_lock();
    lane->pending->followed |= !partner;
    lane->pending->holder[lane->pending->holders++] = h;
    note_held();
    slr_table_unlock();
}

void slr_pending_follow(struct slr_lane *lane, CUstream stream)
{
    hold(lane, stream, false);
}

void slr_pending_add(struct slr_lane *lane, const struct slr_member *member)
{
    CUstream stream = slr_stream_name(member->gather.stream, false);
    struct slr_holder h = {.stream = stream, .blocking = holds_default(lane, stream), .origin = true};
    slr_table_lock();
    lane->pending->active = true;
    lane->pending->member[0] = *member;
    lane->pending->member[0].gather.route = NULL; /* not kept */
    lane->pending->members = 1;
    lane->pending->serial = ++serial;
    lane->pending->carried = lane->pending->followed = false;
    atomic_store(&lane->pending->shown, false);
    lane->pending->holder[0] = h;
    lane->pending->holders = 1;
    lane->pending->carriers = 0;
    lane->pending->next = list;
    list = lane;
    note_held();
    slr_table_unlock();
    /* From here on every hooked driver call takes the slow way, which looks at the list. */
    atomic_fetch_add(&slr_gate_word, 1);
}

void slr_pending_enqueued(struct slr_lane *lane, const struct slr_gather *g)
{
    const struct slr_member member = {.gather = *g, .turn.site = -1};
    slr_pending_add(lane, &member);
}

/* ---- several together ---- */

/* A gather's entry joins its stream, so an origin that nothing was put on stands in the same group as the call. Nobody has
 * been told of an end, which this one would have to come before. */
bool slr_pending_goes_on(struct slr_lane *lane, CUstream stream)
{
    const struct slr_pending *p = lane->pending;
    const struct slr_holder *h = p->active ? slr_pending_holder(lane, slr_stream_name(stream, false)) : NULL;
    if (!h || !h->origin || atomic_load(&h->overtaken) || p->carried || p->members == SLR_TOGETHER ||
        slr_shared_work_begin(&lane->comm->shared) != SLR_OK)
        return false;
    const bool kept = slr_ring_keep(&lane->ring, p->members - 1) == SLR_OK;
    slr_shared_work_end();
    return kept;
}

void slr_pending_added(struct slr_lane *lane, const struct slr_member *member)
{
    struct slr_pending *p = lane->pending;
    if (!member) { /* the communicator fails: who is joined waits for what has been enqueued */
        slr_ring_swap(&lane->ring, p->members - 1);
        return;
    }
    slr_table_lock();
    p->member[p->members] = *member;
    p->member[p->members++].gather.route = NULL;
    slr_table_unlock();
}

/* Tells whom it concerns of each of them, from number `from` on. */
static void tell_joined(struct slr_lane *lane, unsigned from, unsigned upto, enum slr_reason why)
{
    for (unsigned i = from; i < upto; i++) {
        slr_pending_turn_to(lane, i);
        SLR_WATCH(joined, lane, why);
        slr_pending_turn_to(lane, i);
    }
}

/* Under the table lock, which ends. The gather has no holders that are not joined: it is not pending
 * any more. */
static void end_locked(struct slr_lane *lane)
{
    struct slr_lane **at = &list;
    while (*at != lane)
        at = &(*at)->pending->next;
    *at = lane->pending->next;
    lane->pending->active = false;
    lane->pending->holders = lane->pending->carriers = 0;
    note_held();
    slr_table_unlock();
    atomic_fetch_sub(&slr_gate_word, 1);
    for (unsigned i = 0; i < lane->pending->members; i++) {
        slr_pending_turn_to(lane, i);
        SLR_WATCH(over, lane);
        slr_pending_turn_to(lane, i);
    }
    lane->pending->members = 0;
}

static void end(struct slr_lane *lane)
{
    slr_table_lock();
    end_locked(lane);
}

void slr_pending_aside(struct slr_lane *lane, CUstream stream, const struct slr_gemm *gemm)
{
    struct slr_holder *h = slr_pending_holder(lane, stream);
    slr_table_lock();
    lane->pending->aside = *gemm;
    h->aside = true;
    /* Behind the GEMM an event comes after it as well. */
    atomic_store(&h->overtaken, true);
    slr_table_unlock();
}

bool slr_pending_has_aside(const struct slr_lane *lane)
{
    for (unsigned i = 0; i < lane->pending->holders; i++)
        if (lane->pending->holder[i].aside)
            return true;
    return false;
}

enum slr_status slr_pending_stand(struct slr_lane *lane, CUstream stream)
{
    if (!slr_stream_is_green(stream, lane->ring.ctx) || slr_stream_may_capture(stream))
        return SLR_OK;
    return slr_ring_stand(&lane->ring, stream);
}

/* Behind the last of the first `upto` gathers a stream is behind all of them. Where they are measured, each has its own
 * part of the time that the stream stands still. */
static enum slr_status join(struct slr_lane *lane, const struct slr_holder *h, unsigned upto, bool exposed)
{
    enum slr_status s = SLR_OK;
    for (unsigned i = h->from; i < upto && s == SLR_OK; i++) {
        slr_pending_turn_to(lane, i);
        if (exposed && (i + 1 == upto || lane->ring.now.timing))
            s = slr_ring_join_measured(&lane->ring, h->stream);
        else if (i + 1 == upto)
            s = slr_ring_join(&lane->ring, h->stream);
        slr_pending_turn_to(lane, i);
    }
    if (s == SLR_OK && h->aside)
        s = slr_gemm_aside_join(&lane->ring, h->stream);
    return s == SLR_OK ? slr_pending_stand(lane, h->stream) : s;
}

static _Atomic uint64_t joins;

uint64_t slr_pending_joins(void)
{
    return atomic_load(&joins);
}

/* `exposed`: the time that the stream stands still counts as not hidden (timeline.h). */
static void make_wait(struct slr_lane *lane, const struct slr_holder *h, unsigned upto, bool exposed)
{
    atomic_fetch_add(&joins, 1);
    enum slr_status s = slr_shared_work_begin(&lane->comm->shared);
    if (s == SLR_OK) {
        s = join(lane, h, upto, exposed);
        slr_shared_work_end();
    }
    if (s != SLR_OK)
        lane->kind->failed(lane, s, "the application's stream could not be joined with the ring");
}

/* The program computes on a follower, not here: what this stream waits is not counted as exposed.
 */
static bool is_followed_origin(const struct slr_lane *lane, const struct slr_holder *h)
{
    return h->origin && lane->pending->followed;
}

/* No holder is left that the program is likely to compute on: see pending.h. */
static bool rest_is_idle(const struct slr_lane *lane)
{
    for (unsigned i = 0; i < lane->pending->holders; i++)
        if (!lane->pending->holder[i].partner && !is_followed_origin(lane, &lane->pending->holder[i]))
            return false;
    return true;
}

/* The holder waits for the gather, or has consumed it. */
static void drop_holder(struct slr_lane *lane, struct slr_holder *h)
{
    slr_table_lock();
    *h = lane->pending->holder[--lane->pending->holders];
    if (lane->pending->holders == 0) {
        end_locked(lane);
        return;
    }
    note_held();
    slr_table_unlock();
    if (!rest_is_idle(lane))
        return;
    for (unsigned i = 0; i < lane->pending->holders; i++)
        make_wait(lane, &lane->pending->holder[i], lane->pending->members, false);
    end(lane);
}

/* It is behind the first `upto` of the gathers, and what has been put on it since is not a part of what stood there:
 * no event carries the others from there any more. */
static void go_on(struct slr_holder *h, unsigned upto)
{
    slr_table_lock();
    h->from = upto;
    h->aside = false;
    atomic_store(&h->overtaken, true);
    slr_table_unlock();
}

void slr_pending_consumed(struct slr_lane *lane, CUstream stream, unsigned i)
{
    struct slr_holder *h = slr_pending_holder(lane, stream);
    if (i + 1 < lane->pending->members)
        go_on(h, i + 1);
    else
        drop_holder(lane, h);
}

void slr_pending_join_some(struct slr_lane *lane, struct slr_holder *h, unsigned upto, enum slr_reason why,
                           const struct slr_operation *op)
{
    slr_note_join(lane, &lane->pending->member[upto - 1].gather, why, op);
    tell_joined(lane, h->from, upto, why);
    make_wait(lane, h, upto, true);
    go_on(h, upto);
}

/* A context that was reset has no work. */
static bool is_idle(struct slr_lane *lane)
{
    if (slr_shared_enter(&lane->comm->shared) != SLR_OK)
        return true;
    const bool idle = slr_ring_idle(&lane->ring);
    slr_shared_leave();
    return idle;
}

/* An NVTX range, when there is something to wait for. */
static bool nvtx_join(struct slr_lane *lane, enum slr_reason why)
{
    return slr_nvtx_on() && !is_idle(lane) &&
           slr_nvtx_begin("join:", slr_reason_name(why),
                          slr_pending_latest(lane)->plan.shard * (uint64_t)lane->ring.nranks);
}

void slr_pending_join(struct slr_lane *lane, enum slr_reason why, const char *who)
{
    if (!lane->pending->active)
        return;
    bool nvtx = nvtx_join(lane, why);
    /* No lock of the table: holders change only with the lane's lock held, too. */
    for (unsigned i = 0; i < lane->pending->holders; i++)
        make_wait(lane, &lane->pending->holder[i], lane->pending->members,
                  !is_followed_origin(lane, &lane->pending->holder[i]));
    slr_nvtx_end(nvtx);
    slr_note_join(lane, slr_pending_latest(lane), why, &(struct slr_operation){.who = who});
    tell_joined(lane, 0, lane->pending->members, why);
    end(lane);
}

void slr_pending_share(struct slr_lane *lane, CUstream stream)
{
    CUstream name = slr_stream_name(stream, false);
    slr_lane_lock(lane);
    /* A stream of the program's may now see the gather's end behind another one than its own. */
    lane->order->several = true;
    if (lane->pending->active && !slr_pending_holder(lane, name)) {
        if (lane->pending->holders < SLR_HOLDERS && name != CU_STREAM_PER_THREAD)
            hold(lane, name, true);
        else
            slr_pending_join(lane, SLR_R_JOIN_GROUP, "ncclGroupEnd");
    }
    slr_lane_unlock(lane);
}

/* ---- what an operation could observe ---- */

/* An operation as it is compared with holders. */
struct sight {
    const struct slr_operation *op;
    CUcontext ctx; /* the home of that the stream is of; a default stream exists in each context. NULL: any */
    bool is_default;
    enum { UNKNOWN, NO, YES } blocking; /* only the driver knows */
    bool ask;                           /* that it has to be asked */
};

static struct sight sight_of(const struct slr_operation *op)
{
    struct sight s = {.op = op, .is_default = slr_stream_is_default(op->stream)};
    if (s.is_default) /* whether a green context's one waits for the primary one's streams, CUDA does not say */
        s.ctx = slr_context_now();
    return s;
}

/* The legacy default stream is a holder: whether the operation's stream synchronises with it. This
 * runs under the table lock, where the driver is not called, so an unknown answer is noted in `ask`
 * and counts as no for now. */
static bool synchronises(struct sight *s, const struct slr_lane *lane)
{
    s->ask = s->ask || s->blocking == UNKNOWN;
    return s->blocking == YES && (!s->ctx || s->ctx == lane->ring.ctx);
}

/* The rules of pending.h's table. CUDA's legacy default stream and all streams that are not
 * non-blocking wait for each other. */
static bool observes(struct sight *s, const struct slr_lane *lane, const struct slr_holder *h)
{
    if (s->is_default && s->ctx && s->ctx != lane->ring.ctx)
        return false;
    if (h->stream == s->op->stream)
        return lane != s->op->of;
    if (s->is_default)
        return h->blocking;
    /* Stream 0 names the legacy default stream. */
    return !h->stream && synchronises(s, lane);
}

/* Only on the holder's own stream: what other streams see through the legacy default stream is
 * not followed any further. */
static bool may_overtake(const struct slr_operation *op, const struct slr_lane *lane, const struct slr_holder *h)
{
    return op->overtakes && h->stream == op->stream &&
           (!h->aside || (op->gemm && slr_gemms_apart(&lane->pending->aside, op->gemm)));
}

/* Of a gather over hosts the first one's shard is being sent until the last one's arrives, so what meets one waits for all. */
static bool overtakes_all(const struct slr_operation *op, const struct slr_lane *lane)
{
    for (unsigned i = 0; i < lane->pending->members; i++)
        if (!op->overtakes(lane, &lane->pending->member[i].gather, op->what))
            return false;
    return true;
}

/* How many of the gathers, from the first on, the operation has to be behind on the holder; 0: it overtakes all that it
 * holds. */
static unsigned needs(const struct slr_operation *op, const struct slr_lane *lane, const struct slr_holder *h)
{
    unsigned n = lane->pending->members;
    if (!may_overtake(op, lane, h))
        return n;
    if (lane->comm->hosts)
        return overtakes_all(op, lane) ? 0 : n;
    while (n > h->from && op->overtakes(lane, &lane->pending->member[n - 1].gather, op->what))
        n--;
    return n > h->from ? n : 0;
}

static bool overtakes(const struct slr_operation *op, const struct slr_lane *lane, const struct slr_holder *h)
{
    return needs(op, lane, h) == 0;
}

/* Whether an operation that overtakes has to be remembered: if the next event would come before
 * it. */
static bool unmarked(const struct slr_operation *op, const struct slr_lane *lane, const struct slr_holder *h)
{
    if (!h->origin || h->overtaken)
        return false;
    /* Before the first event they are a part of what stood on the stream. */
    if (op->waits_for_nothing || op->among == lane)
        return lane->pending->carried && !(h->moved_on && op->among == lane);
    return true;
}

/* The next holder that is to be joined or marked. */
static struct slr_holder *observed(struct sight *s, struct slr_lane *lane)
{
    for (unsigned i = 0; i < lane->pending->holders; i++) {
        struct slr_holder *h = &lane->pending->holder[i];
        if (observes(s, lane, h) && (!overtakes(s->op, lane, h) || unmarked(s->op, lane, h)))
            return h;
    }
    return NULL;
}

static bool is_observed(struct slr_lane *lane, void *s)
{
    return observed(s, lane) != NULL;
}

/* The next communicator with a holder that the operation could observe. The driver is asked about
 * the operation's stream at the first communicator for which that matters, and outside of the table
 * lock: programs with no holder on a default stream never pay for it. */
static struct slr_lane *next_observed(struct sight *s)
{
    struct slr_lane *lane = slr_pending_may_observe(s->op->stream) ? slr_pending_find(is_observed, s) : NULL;
    if (lane || !s->ask)
        return lane;
    s->ask = false;
    s->blocking = blocking(s->op->stream) ? YES : NO;
    s->ctx = slr_stream_context(s->op->stream);
    return slr_pending_find(is_observed, s);
}

/* Under the table lock. */
static void mark(const struct slr_operation *op, const struct slr_lane *lane, struct slr_holder *h)
{
    atomic_store(op->among == lane ? &h->moved_on : &h->overtaken, true);
}

/* What nobody writes a line of is marked without the lane's lock. Visits all, as it never matches. */
static bool mark_overtaken(struct slr_lane *lane, void *sight)
{
    struct sight *s = sight;
    struct slr_holder *h = slr_pending_holder(lane, s->op->stream);
    if (h && observes(s, lane, h) && overtakes(s->op, lane, h) && unmarked(s->op, lane, h))
        mark(s->op, lane, h);
    return false;
}

/* Under the lane's lock. */
static void join_observed(struct slr_lane *lane, struct sight *s)
{
    enum slr_reason why = s->op->why;
    bool joined = false, nvtx = false;
    /* Looked up anew each time: dropping a holder moves another one into its place. */
    for (struct slr_holder *h; (h = observed(s, lane)) != NULL;) {
        const unsigned behind = needs(s->op, lane, h);
        if (behind == 0) {
            slr_note_overtaken(lane, slr_pending_latest(lane), s->op);
            slr_table_lock();
            mark(s->op, lane, h);
            slr_table_unlock();
            continue;
        }
        if (behind < lane->pending->members) {
            slr_pending_join_some(lane, h, behind, why, s->op);
            continue;
        }
        if (!joined) {
            nvtx = nvtx_join(lane, why);
            slr_note_join(lane, slr_pending_latest(lane), why, s->op);
            tell_joined(lane, h->from, behind, why);
            joined = true;
        }
        make_wait(lane, h, behind, why != SLR_R_JOIN_NEXT_GATHER || !is_followed_origin(lane, h));
        drop_holder(lane, h);
    }
    slr_nvtx_end(nvtx);
}

void slr_pending_join_observed(const struct slr_operation *op)
{
    struct sight s = sight_of(op);
    if (op->overtakes && !op->gemm && slr_pending_may_observe(op->stream))
        slr_pending_find(mark_overtaken, &s);
    /* One communicator at a time, because two communicators' locks are never held together. */
    for (struct slr_lane *lane; (lane = next_observed(&s)) != NULL;) {
        slr_lane_lock(lane);
        join_observed(lane, &s);
        slr_lane_unlock(lane);
        slr_lane_put(lane);
    }
}

static bool is_holder(struct slr_lane *lane, void *stream)
{
    return slr_pending_holder(lane, stream) != NULL;
}

bool slr_pending_held(CUstream stream)
{
    struct slr_lane *lane = slr_pending_may_observe(stream) ? slr_pending_find(is_holder, stream) : NULL;
    slr_lane_put(lane);
    return lane != NULL;
}

bool slr_pending_observed(const struct slr_operation *op)
{
    struct sight s = sight_of(op);
    struct slr_lane *lane = next_observed(&s);
    slr_lane_put(lane);
    return lane != NULL;
}

void slr_pending_join_stream(CUstream stream, enum slr_reason why, const char *who)
{
    const struct slr_operation op = {.stream = slr_stream_name(stream, false), .why = why, .who = who};
    if (!slr_pending_may_observe(op.stream))
        return;
    /* The joins call the driver; its hooks must not come back here. */
    slr_guard++;
    slr_pending_join_observed(&op);
    slr_guard--;
}
