/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/nccl_call.h"

#include "base/status.h"
#include "cache/captures.h"
#include "cache/handles.h"
#include "kernels/flags.h"
#include "kernels/gemm.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/comm/watch.h"
#include "plugin/connect/connect.h"
#include "plugin/passed/in_call.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"
#include "plugin/produce/product.h"
#include "plugin/tuner/tuner.h"

/* As order.h and comm/group_kept.c compare streams: 0 may mean either default stream. */
static CUstream named(cudaStream_t stream)
{
    return slr_stream_name((CUstream)stream, false);
}

void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream)
{
    struct slr_comm *c = slr_comm_find(comm);
    slr_product_on_stream((CUstream)stream);
    slr_solo_note(named(stream));
    /* NCCL enqueues nothing before the group's end, which orders the streams that are noted here.
     */
    if (slr_in_group()) {
        slr_group_add_use(c, named(stream), true);
    } else {
        slr_order_before_nccl(c, named(stream));
        slr_explore_begin(c, (CUstream)stream);
        slr_front_begin(comm);
    }
    slr_comm_put(c);
}

ncclResult_t slr_nccl_end(ncclComm_t comm, cudaStream_t stream, ncclResult_t r)
{
    slr_front_end();
    if (r == ncclSuccess && !slr_in_group()) {
        struct slr_comm *c = slr_comm_find(comm);
        slr_order_after_nccl(c, named(stream));
        slr_comm_put(c);
    }
    return slr_explore_end(r);
}

/* A peer that gets the small gather may take that for the end of the large one on this rank, and use the memory. */
static bool may_reach(const struct slr_lane *lane, const struct slr_gather *g)
{
    for (int peer = 0; peer < lane->ring.nranks; peer++)
        if (peer != lane->ring.rank && slr_shared_same_process(&lane->comm->shared, peer))
            return true;
    return slr_memory_given(slr_gather_source(g), g->plan.shard) ||
           slr_memory_given(g->recv, g->plan.shard * (size_t)lane->ring.nranks);
}

/* Neither of the call's buffers has anything in common with the pending gather's, `g`. */
static bool apart(const struct slr_lane *lane, const struct slr_gather *g, const void *what)
{
    const struct slr_call *call = what;
    const uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    const struct slr_extent read = {send, send + call->shard},
                            written = {recv, recv + call->shard * (size_t)call->comm->nranks};
    return !may_reach(lane, g) && slr_extent_apart(read, g, lane->ring.nranks) &&
           slr_extent_apart(written, g, lane->ring.nranks);
}

/* Joins what the call on its stream could observe, but for what it overtakes. True: it does. */
static bool overtakes_pending(const struct slr_call *call)
{
    struct slr_operation op = {.stream = named(call->stream), .why = SLR_R_JOIN_OTHER_OP, .who = "ncclAllGather"};
    const bool may = call->comm && call->shard && !call->measured && call->why != SLR_R_TRIAL && !slr_in_group() &&
                     slr_nothing_captures();
    if (may) {
        op.overtakes = apart;
        op.what = call;
        op.among = call->comm->lane;
    }
    slr_guard++;
    slr_pending_join_observed(&op);
    bool overtakes = may && slr_pending_held(op.stream);
    slr_guard--;
    return overtakes;
}

ncclResult_t slr_gather_nccl(const struct slr_call *call)
{
    const bool overtakes = overtakes_pending(call);
    slr_nccl_begin(call->nccl, (cudaStream_t)call->stream);
    slr_guard++;
    if (call->comm) /* what the stream has to wait for is not NCCL's time */
        SLR_WATCH(leaves, call);
    const struct slr_turn_call in = slr_turn_enter(call);
    int outer = overtakes ? slr_guard_program : slr_program_begin();
    ncclResult_t r =
        slr_real.ncclAllGather(call->send, call->recv, call->count, call->type, call->nccl, (cudaStream_t)call->stream);
    slr_program_end(outer);
    if (call->comm)
        SLR_WATCH(left, call, r);
    const ncclResult_t told = slr_turn_leave(call, in, r == ncclSuccess); /* behind what is measured */
    slr_guard--;
    r = slr_nccl_end(call->nccl, (cudaStream_t)call->stream, r);
    return told != ncclSuccess ? told : r;
}

/* ---- NCCL's turn ---- */

#define NO_WORD (-1)

/* The words are registered when the ranks have been connected once, and stay so. */
static int take_word(struct slr_comm *c)
{
    if (atomic_load(&c->turns_off) || !atomic_load(&c->link->checked))
        return NO_WORD;
    const unsigned at = atomic_fetch_add(&c->turns, 1) % SLR_TURNS;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, at);
    uint32_t done = atomic_load(&t->done);
    return atomic_compare_exchange_strong(&t->made, &done, done + 1) ? (int)at : NO_WORD;
}

struct slr_turn_call slr_turn_begin(struct slr_comm *c, bool follow)
{
    return (struct slr_turn_call){.entered = true,
                                  .word = follow ? take_word(c) : NO_WORD,
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
    if (turn == NO_WORD)
        return;
    struct slr_turn *t = slr_turn(c->lane->ring.flags, c->nranks, c->rank, (unsigned)turn);
    const uint32_t made = atomic_load(&t->made);
    if (enqueued && write_behind(c, (unsigned)turn, made, stream) == SLR_OK)
        return;
    if (enqueued) /* it would not work for the next one either */
        atomic_store(&c->turns_off, true);
    atomic_store(&t->done, made);
}

ncclResult_t slr_turn_end(struct slr_comm *c, struct slr_turn_call call, CUstream stream, bool enqueued)
{
    end_word(c, call.word, stream, enqueued);
    if (slr_in_call_leave(call.entry))
        return ncclSuccess;
    const ncclResult_t own = slr_comm_answer(c);
    return own != ncclSuccess ? own : ncclRemoteError; /* another one's gather held it up */
}

ncclResult_t slr_turn_leave(const struct slr_call *call, struct slr_turn_call in, bool enqueued)
{
    return in.entered ? slr_turn_end(call->comm, in, call->stream, enqueued) : ncclSuccess;
}

bool slr_turns_of(struct slr_comm *c)
{
    uint32_t done;
    return slr_turns_open(c->lane->ring.flags, c->nranks, c->rank, &done);
}
