/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/turn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include "base/status.h"
#include "kernels/flags.h"
#include "plugin/comm/call.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/passed/in_call.h"
#include "plugin/pending/order.h"

/* The words are registered when the ranks have been connected once, and stay so. */
static int take_word(struct slr_comm *c)
{
    if (atomic_load(&c->turns_off) || !atomic_load(&c->link->once))
        return SLR_NO_WORD;
    const unsigned at = atomic_fetch_add(&c->turns, 1) % SLR_TURNS;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, at);
    uint32_t done = atomic_load(&t->done);
    return atomic_compare_exchange_strong(&t->made, &done, done + 1) ? (int)at : SLR_NO_WORD;
}

struct slr_turn_call slr_turn_begin(struct slr_comm *c, bool follow)
{
    return (struct slr_turn_call){.entered = true,
                                  .word = follow ? take_word(c) : SLR_NO_WORD,
                                  .entry = slr_in_call_enter(follow ? c->shared.ctx : NULL, c)};
}

struct slr_turn_call slr_turn_enter(const struct slr_call *call)
{
    const bool turn = call->why == SLR_R_TRIAL;
    if (call->comm && !slr_in_group())
        return slr_turn_begin(call->comm, turn);
    if (call->comm)
        slr_group_add_turn(call->comm, slr_stream_name(call->stream, false), turn);
    return (struct slr_turn_call){.entered = false};
}

static enum slr_status write_behind(struct slr_comm *c, unsigned turn, uint32_t value, CUstream stream)
{
    const CUdeviceptr word =
        c->lane->ring.dflags + slr_turn_offset(c->nranks, c->rank, turn) + offsetof(struct slr_turn, done);
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = SLR_CU(cuStreamWriteValue32, stream, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    slr_shared_work_end();
    return s;
}

static void end_word(struct slr_comm *c, int turn, CUstream stream, bool enqueued)
{
    if (turn == SLR_NO_WORD)
        return;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, (unsigned)turn);
    const uint32_t made = atomic_load(&t->made);
    if (enqueued && write_behind(c, (unsigned)turn, made, stream) == SLR_OK)
        return;
    if (enqueued) /* it would not work for the next one either */
        atomic_store(&c->turns_off, true);
    atomic_store(&t->done, made);
}

void slr_turn_late(struct slr_comm *c, int word, CUstream stream, bool enqueued)
{
    end_word(c, word, stream, enqueued);
}

ncclResult_t slr_turn_end(struct slr_comm *c, struct slr_turn_call call, CUstream stream, ncclResult_t r)
{
    if (r != ncclInProgress)
        end_word(c, call.word, stream, r == ncclSuccess);
    if (slr_in_call_leave(call.entry))
        return ncclSuccess;
    const ncclResult_t own = slr_comm_answer(c);
    return own != ncclSuccess ? own : ncclRemoteError; /* another one's gather held it up */
}

ncclResult_t slr_turn_leave(const struct slr_call *call, struct slr_turn_call in, ncclResult_t r)
{
    return in.entered ? slr_turn_end(call->comm, in, call->stream, r) : ncclSuccess;
}

bool slr_turns_of(struct slr_comm *c)
{
    uint32_t done;
    return slr_turns_open(c->lane->ring.flags, c->nranks, c->rank, &done);
}

/* ---- late ---- */

/* One stream, or one call. */
struct slr_late {
    struct slr_late *next;
    pthread_t thread; /* that made the call */
    CUstream stream;
    slr_stream_id id;
    int word;
    bool crosses;
    struct slr_call call; /* comm NULL: a stream */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the lists */
static _Atomic unsigned count;                           /* of all communicators */

/* Without memory the stream's place in the order is where it is now. */
static struct slr_late *new_late(CUstream stream)
{
    struct slr_late *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->thread = pthread_self();
    l->stream = slr_stream_name(stream, false);
    l->id = slr_stream_id_of(l->stream);
    return l;
}

/* It is whole. */
static void keep(struct slr_comm *c, struct slr_late *l)
{
    pthread_mutex_lock(&lock);
    l->next = atomic_load(&c->late);
    atomic_store(&c->late, l);
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
}

void slr_late_stream(struct slr_comm *c, CUstream stream, int word, bool crosses)
{
    struct slr_late *l = c ? new_late(stream) : NULL;
    if (!l) {
        slr_order_after_nccl(c, stream);
        return;
    }
    l->word = word;
    l->crosses = crosses;
    keep(c, l);
}

void slr_late_call(const struct slr_call *call, int word)
{
    struct slr_late *l = new_late(call->stream);
    if (!l)
        return;
    l->call = *call;
    l->word = word;
    keep(call->comm, l);
}

static struct slr_late *take(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    struct slr_late *list = atomic_exchange(&c->late, NULL);
    pthread_mutex_unlock(&lock);
    return list;
}

static enum slr_status cross_by(struct slr_comm *c, CUstream from, CUstream to)
{
    SLR_TRY(slr_shared_work_begin(&c->shared));
    slr_lane_lock(c->lane);
    enum slr_status s = slr_ring_wait_stream(&c->lane->ring, from, to);
    slr_lane_unlock(c->lane);
    slr_shared_work_end();
    return s;
}

/* The ring of one that spans hosts is its inside's. */
static enum slr_status cross(struct slr_comm *c, CUstream from, CUstream to)
{
    struct slr_comm *inside = slr_comm_inside(c);
    const enum slr_status s = cross_by(inside ? inside : c, from, to);
    slr_comm_put(inside);
    return s;
}

static enum slr_status cross_all(struct slr_comm *c, const struct slr_late *list)
{
    enum slr_status s = SLR_OK;
    for (const struct slr_late *from = list; from; from = from->next)
        for (const struct slr_late *to = list; to && s == SLR_OK; to = to->next)
            if (from->crosses && to->crosses && from->id != to->id)
                s = cross(c, from->stream, to->stream);
    return s;
}

/* A thread's default stream is another one's to no other thread. */
static bool named_here(const struct slr_late *l)
{
    return slr_stream_id_of(l->stream) == l->id;
}

static void do_one(struct slr_comm *c, const struct slr_late *l, ncclResult_t state)
{
    if (l->call.comm)
        SLR_WATCH(left, &l->call, state);
    const bool there = state == ncclSuccess && named_here(l);
    slr_turn_late(c, l->word, l->stream, there);
    if (there && !l->call.comm)
        slr_order_after_nccl(c, l->stream);
}

static void free_all(struct slr_late *list)
{
    for (struct slr_late *next; list; list = next) {
        next = list->next;
        free(list);
        atomic_fetch_sub(&count, 1);
    }
}

/* Two threads may come at once. */
static void do_all(struct slr_comm *c, ncclResult_t state)
{
    struct slr_late *list = take(c);
    slr_guard++;
    for (const struct slr_late *l = list; l; l = l->next)
        do_one(c, l, state);
    const enum slr_status s = state == ncclSuccess ? cross_all(c, list) : SLR_OK;
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the streams of a group could not be ordered");
    slr_guard--;
    free_all(list);
}

ncclResult_t slr_late_settle(struct slr_comm *c)
{
    ncclResult_t state = ncclSuccess;
    if (!c || !atomic_load_explicit(&c->late, memory_order_relaxed))
        return ncclSuccess;
    slr_guard++;
    if (slr_real.ncclCommGetAsyncError(c->nccl, &state) != ncclSuccess)
        state = ncclInternalError;
    slr_guard--;
    if (state != ncclInProgress)
        do_all(c, state);
    return state;
}

static bool made_here(const struct slr_late *l, CUstream stream)
{
    (void)stream;
    return pthread_equal(l->thread, pthread_self());
}

static bool used(const struct slr_late *l, CUstream stream)
{
    return l->stream == stream;
}

static bool any(const struct slr_comm *c, bool (*what)(const struct slr_late *l, CUstream stream), CUstream stream)
{
    if (!atomic_load_explicit(&c->late, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&lock);
    const struct slr_late *l = atomic_load(&c->late);
    while (l && !what(l, stream))
        l = l->next;
    pthread_mutex_unlock(&lock);
    return l != NULL;
}

void slr_late_told(struct slr_comm *c, ncclResult_t state)
{
    if (state != ncclInProgress && any(c, made_here, NULL))
        do_all(c, state);
}

void slr_late_stream_end(CUstream stream)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    if (atomic_load_explicit(&count, memory_order_relaxed) == 0 || slr_guard != 0)
        return;
    const int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        if (any(comms[i], used, slr_stream_name(stream, false)))
            slr_late_settle(comms[i]);
        slr_comm_put(comms[i]);
    }
}

void slr_late_drop(struct slr_comm *c)
{
    free_all(take(c));
}
