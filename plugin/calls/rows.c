/* SPDX-License-Identifier: Apache-2.0 */
/* What each collective has of its own in the flow of all (collective.h). */
#include "plugin/calls/calls.h"
#include "plugin/calls/collective.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/stream.h"
#include "plugin/comm/call.h"
#include "plugin/gather/gather.h"
#include "plugin/passed/turn.h"
#include "plugin/passed/nccl_call.h"
#include "plugin/record/record.h"
#include "plugin/scatter/scatter.h"
#include "plugin/trials/trials.h"
#include "plugin/util/process.h"

/* `off`: what it is when slipring is. */
static ncclResult_t begin(const struct slr_flow *flow, ncclResult_t (*off)(const struct slr_call *call),
                          const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct slr_call call = {.flow = flow,
                            .op = op,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .type = type,
                            .nccl = comm,
                            .stream = (CUstream)stream,
                            .config = config};
    return slr_process_off() ? off(&call) : slr_call_begin(&call);
}

/* ---- ncclAllGather ---- */

static ncclResult_t gather_enter(const struct slr_call *call)
{
    return slr_gather_entry(call->comm, call->stream, call->from);
}

static ncclResult_t gather_ring(const struct slr_call *call, bool entered)
{
    (void)entered;
    return slr_gather_ring(call, true, SLR_R_RING);
}

/* Connecting may have refused it. */
static ncclResult_t gather_to_nccl(struct slr_call *call)
{
    call->passed = call->comm ? ++call->comm->passed : 0;
    return slr_gather_nccl(call);
}

const struct slr_flow slr_flow_all_gather = {
    .kind = &slr_collectives[SLR_ALL_GATHER],
    .choose = slr_trials_call,
    .nccl = gather_to_nccl,
    .enter = gather_enter,
    .ring = gather_ring,
    .capture = &slr_capture_gather,
    .compare = {.prepare = slr_verify_prepare, .nccl = slr_verify_run, .finish = slr_verify_finish}};

ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream, const ncclCollConfig_t *config)
{
    return begin(&slr_flow_all_gather, slr_gather_nccl, send, recv, count, type, ncclSum, comm, stream, config);
}

/* ---- ncclReduceScatter and ncclAllReduce ---- */

static ncclResult_t sum_to_nccl(const struct slr_call *call)
{
    struct slr_other o = {.func = call->flow->kind->gets_all ? SLR_NCCL_ALL_REDUCE : SLR_NCCL_REDUCE_SCATTER,
                          .count = call->count,
                          .type = call->type,
                          .comm = call->nccl,
                          .stream = (cudaStream_t)call->stream};
    slr_other_begin(&o);
    slr_guard++;
    if (call->comm)
        SLR_WATCH(leaves, call);
    const struct slr_turn_call in = slr_turn_enter(call);
    slr_guard--;
    ncclResult_t r = slr_scatter_real(call, call->recv);
    slr_guard++;
    if (call->comm)
        SLR_WATCH(left, call, r);
    if (call->comm && r == ncclInProgress)
        slr_late_call(call, in.word);
    const ncclResult_t told = slr_turn_leave(call, in, r); /* behind what is measured */
    slr_guard--;
    r = slr_other_end(&o, r);
    return told != ncclSuccess ? told : r;
}

/* As the hook that only notices it. */
static ncclResult_t sum_passed(struct slr_call *call)
{
    slr_guard--;
    const ncclResult_t r = sum_to_nccl(call);
    slr_guard++;
    return r;
}

/* What NCCL does for a comparison is not seen by who keeps the GEMM's product, as nothing does that
 * slipring itself calls: so what the ring takes of it is what is compared. */
#define FLOW(id)                                                                                                       \
    {                                                                                                                  \
        .kind = &slr_collectives[id], .may = slr_scatter_may, .has = slr_scatter_has, .choose = slr_scatter_choose,    \
        .can = slr_scatter_can, .nccl = sum_passed, .ring = slr_scatter_ring, .capture = &slr_capture_scatter,         \
        .compare = {                                                                                                   \
            .prepare = slr_verify_sum_prepare,                                                                         \
            .nccl = slr_verify_sum_run,                                                                                \
            .inputs = slr_verify_sum_inputs,                                                                           \
            .finish = slr_verify_sum_finish                                                                            \
        }                                                                                                              \
    }
const struct slr_flow slr_flow_reduce_scatter = FLOW(SLR_REDUCE_SCATTER), slr_flow_all_reduce = FLOW(SLR_ALL_REDUCE);

ncclResult_t slr_reduce_scatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    return begin(&slr_flow_reduce_scatter, sum_to_nccl, send, recv, count, type, op, comm, stream, config);
}

ncclResult_t slr_all_reduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    return begin(&slr_flow_all_reduce, sum_to_nccl, send, recv, count, type, op, comm, stream, config);
}
