/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/scatter/scatter.h"

#include "base/counters.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/status.h"
#include "kernels/timing.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/hosts/hosts.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/produce.h"
#include "plugin/produce/product.h"
#include "plugin/produce/product_parts.h"
#include "plugin/trials/trials.h"
#include "plugin/abi/nccl_common.h"

#define LEAST_PART ((size_t)1 << 20) /* bytes */
#define MOST_PIECES 8                /* of a shard */

/* ---- the decision ---- */

bool slr_scatter_type(ncclDataType_t type, enum slr_reduce_type *out)
{
    switch (type) {
    case ncclBfloat16:
        *out = SLR_REDUCE_BF16;
        return true;
    case ncclFloat16:
        *out = SLR_REDUCE_F16;
        return true;
    case ncclFloat32:
        *out = SLR_REDUCE_F32;
        return true;
    default:
        return false;
    }
}

float slr_scatter_divisor(const struct slr_call *call)
{
    return call->op == ncclAvg ? (float)call->comm->nranks : 1.0f;
}

ncclResult_t slr_scatter_real(const struct slr_call *call, void *recv)
{
    const bool all = call->flow->kind->gets_all;
    const cudaStream_t stream = (cudaStream_t)call->stream;
    if (call->config)
        return (all ? slr_real.ncclAllReduceConfig : slr_real.ncclReduceScatterConfig)(
            call->send, recv, call->count, call->type, call->op, call->nccl, stream, call->config);
    return (all ? slr_real.ncclAllReduce : slr_real.ncclReduceScatter)(call->send, recv, call->count, call->type,
                                                                       call->op, call->nccl, stream);
}

enum slr_reason slr_scatter_may(const struct slr_call *call)
{
    const struct slr_collective *kind = call->flow->kind;
    const struct slr_comm *c = call->comm;
    const bool strict = kind->gets_all && (c->hosts ? c->hosts->strict : slr_sums_any_strict(c));
    const bool off = slr_get(kind->setting) == SLR_SCATTERS_OFF || strict;
    return off ? kind->off : SLR_R_RING;
}

enum slr_reason slr_scatter_has(const struct slr_call *call)
{
    enum slr_reduce_type type;
    return slr_scatter_type(call->type, &type) && (call->op == ncclSum || call->op == ncclAvg) ? SLR_R_RING
                                                                                               : SLR_R_SCATTER_TYPE;
}

enum slr_reason slr_scatter_choose(struct slr_call *call)
{
    slr_produce_learn(call);
    return slr_get(call->flow->kind->setting) == SLR_SCATTERS_ALWAYS ? SLR_R_RING : slr_trials_call(call);
}

static size_t most_of(const struct slr_call *call)
{
    return slr_scatter_room(call->comm, call->shard);
}

/* All pieces are put into the streams' queues before the next rank's call may come, when one thread makes the calls of
 * several ranks: more than one piece may not have room there. When connected; uniform. */
static bool has_room(const struct slr_call *call)
{
    const size_t most = most_of(call);
    return call->shard <= most ||
           (call->shard <= MOST_PIECES * most && !slr_shared_any_in_one_process(&call->comm->shared));
}

enum slr_reason slr_scatter_can(const struct slr_call *call)
{
    if (!slr_sums_all_can(call->comm))
        return SLR_R_SCATTER_KERNEL;
    return has_room(call) ? SLR_R_RING : SLR_R_SCATTER_ROOM;
}

bool slr_scatter_fits(const struct slr_call *call)
{
    return call->shard <= most_of(call);
}

/* ---- the call ---- */

/* Of each shard what lies from `at` on, `most` bytes at most. */
static void lengths(const struct slr_call *call, size_t at, size_t most, size_t length[SLR_MAX_RANKS])
{
    for (int r = 0; r < call->comm->nranks; r++) {
        const size_t begin = (size_t)r * call->shard + at, end = begin + most;
        length[r] = begin >= call->bytes ? 0 : (end < call->bytes ? end : call->bytes) - begin;
    }
}

/* Without a product: all is there at the entry, and goes in parts so that copies and sums overlap. They end with
 * pieces (kernels/ring_scatter.c). */
unsigned slr_scatter_plain(const struct slr_comm *c, const struct slr_plan *plan, const size_t length[SLR_MAX_RANKS],
                           struct slr_scatter_part *part)
{
    const size_t most = plan->shard / LEAST_PART;
    const uint32_t each = most < 1 ? 1 : most < SLR_PLAIN_PARTS ? (uint32_t)most : SLR_PLAIN_PARTS;
    unsigned n = 0;
    for (uint32_t q = 0; q < each; q++) {
        const size_t at = slr_scatter_bound(plan, plan->pieces * q / each),
                     to = slr_scatter_bound(plan, plan->pieces * (q + 1) / each);
        for (int i = 1; i <= c->nranks; i++) {
            const int shard = (c->rank + i) % c->nranks;
            const size_t end = to < length[shard] ? to : length[shard];
            if (at < end)
                part[n++] = (struct slr_scatter_part){.shard = shard, .at = at, .bytes = end - at};
        }
    }
    return n;
}

enum slr_status slr_scatter_mark_entry(struct slr_ring *ring, const struct slr_call *call, struct slr_scatter *s)
{
    s->entry = ring->entry;
    return SLR_CU(cuEventRecord, ring->entry, call->stream);
}

/* All that the slots hold of each shard, then the next of it. Counts the parts. */
static enum slr_status by_pieces(const struct slr_call *call, struct slr_scatter *all)
{
    const size_t most = most_of(call);
    struct slr_scatter_part part[SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    struct slr_scatter s = *all;
    all->parts = 0;
    for (size_t at = 0; at < call->shard; at += most) {
        const size_t bytes = call->shard - at < most ? call->shard - at : most;
        s.send = all->send + at;
        s.recv = all->recv + at;
        s.all = all->all ? all->all + at : 0;
        s.plan = slr_scatter_plan(bytes);
        s.plan.slots = all->plan.slots;
        lengths(call, at, bytes, s.length);
        s.part = part;
        s.parts = slr_scatter_plain(call->comm, &s.plan, s.length, part);
        s.earlier = (int)all->parts / call->comm->nranks;
        SLR_TRY(slr_ring_scatter(&call->comm->lane->ring, &s));
        all->parts += s.parts;
    }
    return SLR_OK;
}

static enum slr_status go(const struct slr_call *call, struct slr_scatter *s)
{
    struct slr_comm *c = call->comm;
    const size_t most = slr_scatter_most(c->lane->ring.slots[s->plan.slots].bytes, c->nranks);
    SLR_TRY(s->plan.shard <= most ? slr_ring_scatter(&c->lane->ring, s) : by_pieces(call, s));
    if (s->apart)
        return SLR_OK;
    SLR_TRY(slr_order_after_gather(c->lane, slr_stream_name(call->stream, false)));
    SLR_TRY(slr_ring_join(&c->lane->ring, call->stream));
    slr_timing_did(c->lane->ring.now.timing, SLR_TRACK_APP, call->stream, SLR_SPAN_WAIT, -1, -1, 0);
    return slr_pending_stand(c->lane, call->stream);
}

void slr_scatter_arrives(const struct slr_comm *c, struct slr_scatter *s)
{
    const struct slr_slots *slots = &c->lane->ring.slots[s->plan.slots];
    for (int r = 0; r < c->nranks; r++)
        s->arrives[r] = slots->twin && slr_shared_same_process(&c->shared, r) ? slots->twin : slots->at[c->rank];
}

void slr_scatter_describe(const struct slr_call *call, const struct slr_product *p,
                          struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS], struct slr_scatter *s)
{
    const struct slr_comm *c = call->comm;
    *s = (struct slr_scatter){.send = (CUdeviceptr)(uintptr_t)call->send,
                              .recv = (CUdeviceptr)(uintptr_t)call->recv,
                              .stride = call->shard,
                              .plan = slr_scatter_plan(call->shard),
                              .elem = slr_type_bytes(call->type),
                              .divisor = slr_scatter_divisor(call),
                              .reduce = slr_sums_of(c),
                              .part = p ? p->part : plain};
    s->plan.slots = slr_scatter_slots(c, call->shard);
    lengths(call, 0, call->shard, s->length);
    s->parts = p ? p->parts : slr_scatter_plain(c, &s->plan, s->length, plain);
    if (call->flow->kind->gets_all) {
        s->all = s->recv;
        s->recv += (size_t)c->rank * call->shard;
    }
    slr_scatter_type(call->type, &s->type);
    slr_scatter_arrives(c, s);
}

/* Of an all-reduce that nothing stands before but its GEMM, or the copy behind that, which is not over yet, and GEMMs
 * elsewhere: so nobody knows that what is sent is there, and nobody can use it but who comes behind the call. */
static bool unseen(const struct slr_call *call, const struct slr_product *p)
{
    return p && call->flow->kind->gets_all && !call->verify && slr_produce_unused(p, call, slr_pending_joins()) &&
           slr_product_runs(p);
}

enum slr_status slr_scatter_run(const struct slr_call *call, struct slr_scatter *s, const struct slr_product *p,
                                CUevent before)
{
    struct slr_comm *c = call->comm;
    struct slr_watched w = {.gemm = p ? p->timing : NULL};
    if (before)
        SLR_TRY(slr_ring_enter_behind(&c->lane->ring, before, false));
    if (p || call->verify) /* NCCL still reads what the result may be written into */
        SLR_TRY(slr_scatter_mark_entry(&c->lane->ring, call, s));
    s->early = unseen(call, p);
    SLR_WATCH(begins, call, &w);
    /* Here the stream has come to the call: it stands behind all of the GEMM. */
    slr_timing_mark(c->lane->ring.now.timing, SLR_TRACK_APP, call->stream);
    w.status = go(call, s);
    w.end = s->apart ? c->lane->ring.tail : call->stream;
    w.pieces = s->plan.pieces;
    w.chunks = s->parts;
    w.joined = true;
    w.fused = p != NULL;
    SLR_WATCH(enqueued, call, &w);
    return w.status;
}

static enum slr_status run(const struct slr_call *call, const struct slr_product *p, CUevent before)
{
    struct slr_scatter_part plain[SLR_PLAIN_PARTS * SLR_MAX_RANKS];
    struct slr_scatter s;
    slr_scatter_describe(call, p, plain, &s);
    return slr_scatter_run(call, &s, p, before);
}

/* Under the communicator's lock. */
static enum slr_status enqueue(const struct slr_call *call, const struct slr_product *p, CUevent before)
{
    struct slr_comm *c = call->comm;
    slr_pending_join(c->lane, SLR_R_JOIN_NEXT_GATHER, call->flow->kind->function);
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = run(call, p, before);
    slr_shared_work_end();
    if (p)
        atomic_fetch_add(&slr_counters.scatters_fused, 1);
    return s;
}

ncclResult_t slr_scatter_outcome(const struct slr_call *call, enum slr_status s)
{
    if (s != SLR_OK)
        slr_comm_fail(call->comm, s, -1, "the sums could not be enqueued");
    slr_comm_look_failed(call->comm);
    return slr_comm_answer(call->comm);
}

/* It has its entry. */
static ncclResult_t enqueue_plain(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    slr_lane_lock(c->lane);
    enum slr_status s = enqueue(call, NULL, NULL);
    slr_lane_unlock(c->lane);
    return slr_scatter_outcome(call, s);
}

/* Another stream of the communicator's has operations that this one has to come behind: then it has an
 * entry behind them. */
static bool alone(const struct slr_call *call)
{
    return !slr_order_elsewhere(call->comm->lane, slr_stream_name(call->stream, false));
}

const struct slr_product *slr_scatter_take(const struct slr_call *call, bool fits, CUevent *before)
{
    struct slr_comm *c = call->comm;
    slr_reach_look();
    slr_pending_join_stream(call->stream, SLR_R_JOIN_NEXT_GATHER, call->flow->kind->function);
    slr_lane_lock(c->lane);
    const struct slr_product *p = slr_product_take(c, (CUdeviceptr)(uintptr_t)call->send, call->bytes,
                                                   slr_stream_name(call->stream, false), before);
    if (p)
        slr_produce_right(p);
    /* Parts end between elements of the GEMM's. */
    if (p && fits && p->elem == slr_type_bytes(call->type) && alone(call))
        return p;
    slr_lane_unlock(c->lane);
    return NULL;
}

ncclResult_t slr_scatter_ring(const struct slr_call *call, bool entered)
{
    struct slr_comm *c = call->comm;
    CUevent before = NULL;
    slr_solo_note(slr_stream_name(call->stream, false));
    if (entered)
        return enqueue_plain(call);
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    const struct slr_product *p = slr_scatter_take(call, slr_scatter_fits(call), &before);
    if (p) {
        enum slr_status s = enqueue(call, p, before);
        slr_lane_unlock(c->lane);
        return slr_scatter_outcome(call, s);
    }
    ncclResult_t r = slr_gather_entry(c, call->stream, call->from);
    return r == ncclSuccess ? enqueue_plain(call) : r;
}
