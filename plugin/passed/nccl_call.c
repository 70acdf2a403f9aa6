/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/passed/nccl_call.h"

#include "cache/captures.h"
#include "cache/handles.h"
#include "kernels/gemm.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/comm/call.h"
#include "plugin/passed/turn.h"
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

/* The streams of a group's operations on a communicator that spans hosts are those of its inside, which may gather there. */
static void add_inside(const struct slr_comm *c, cudaStream_t stream)
{
    struct slr_comm *inside = slr_comm_inside(c);
    if (inside)
        slr_group_add_use(inside, named(stream), false);
    slr_comm_put(inside);
}

void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream)
{
    struct slr_comm *c = slr_comm_find(comm);
    slr_late_settle(c);
    slr_product_on_stream((CUstream)stream);
    slr_solo_note(named(stream));
    /* NCCL enqueues nothing before the group's end, which orders the streams that are noted here.
     */
    if (slr_in_group()) {
        slr_group_add_use(c, named(stream), true);
        add_inside(c, stream);
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
    if ((r == ncclSuccess || r == ncclInProgress) && !slr_in_group()) {
        struct slr_comm *c = slr_comm_find(comm);
        if (r == ncclInProgress)
            slr_late_stream(c, named(stream), SLR_NO_WORD, false);
        else
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
    /* NCCL's own thread launches late: that is not told from the program's. */
    const bool may = call->comm && !call->comm->nonblocking && !call->config && call->shard && !call->measured &&
                     call->why != SLR_R_TRIAL && !slr_in_group() && slr_nothing_captures();
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

static ncclResult_t real(const struct slr_call *call)
{
    const cudaStream_t stream = (cudaStream_t)call->stream;
    if (call->config)
        return slr_real.ncclAllGatherConfig(call->send, call->recv, call->count, call->type, call->nccl, stream,
                                            call->config);
    return slr_real.ncclAllGather(call->send, call->recv, call->count, call->type, call->nccl, stream);
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
    ncclResult_t r = real(call);
    slr_program_end(outer);
    if (call->comm)
        SLR_WATCH(left, call, r);
    if (call->comm && r == ncclInProgress)
        slr_late_call(call, in.word);
    const ncclResult_t told = slr_turn_leave(call, in, r); /* behind what is measured */
    slr_guard--;
    r = slr_nccl_end(call->nccl, (cudaStream_t)call->stream, r);
    return told != ncclSuccess ? told : r;
}
