/* SPDX-License-Identifier: Apache-2.0 */
/* ncclReduceScatter. As all_gather.c. */
#include "plugin/calls/calls.h"
#include "plugin/calls/collective.h"
#include "plugin/calls/verified.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/gather/nccl_turn.h"
#include "plugin/scatter/record_scatter.h"
#include "plugin/scatter/scatter.h"
#include "plugin/trials/trials.h"
#include "plugin/util/process.h"

static ncclResult_t to_nccl(const struct slr_call *call)
{
    struct slr_other o = {.func = SLR_NCCL_REDUCE_SCATTER,
                          .count = call->count,
                          .type = call->type,
                          .comm = call->nccl,
                          .stream = (cudaStream_t)call->stream};
    slr_other_begin(&o);
    slr_guard++;
    const struct slr_turn_call in = slr_turn_enter(call);
    slr_guard--;
    ncclResult_t r = slr_real.ncclReduceScatter(call->send, call->recv, call->count, call->type, call->op, call->nccl,
                                                (cudaStream_t)call->stream);
    slr_guard++;
    if (call->measured) {
        slr_comm_lock(call->comm);
        slr_trials_sent(call, call->stream);
        slr_comm_unlock(call->comm);
    }
    const ncclResult_t told = slr_turn_leave(call, in, r == ncclSuccess); /* behind what is measured */
    slr_guard--;
    r = slr_other_end(&o, r);
    return told != ncclSuccess ? told : r;
}

/* Connects the ranks, if it comes to that (connect.h): then they know whether they can. */
static enum slr_reason connect(struct slr_call *call)
{
    enum slr_reason why = SLR_R_RING;
    slr_connect(&call->comm, &why, 1);
    return why == SLR_R_RING ? slr_scatter_can(call) : why;
}

/* What NCCL does for a comparison is not seen by who keeps the GEMM's product, as nothing does that
 * slipring itself calls: so what the ring takes of it is what is compared. */
static ncclResult_t to_ring(struct slr_call *call)
{
    slr_gather_number(call);
    return call->verify ? slr_verified_finish(call, 1, slr_verified_run(call, 1, slr_scatter_call))
                        : slr_scatter_call(call);
}

/* As the hook that only notices it. */
static ncclResult_t passed(struct slr_call *call)
{
    slr_guard--;
    const ncclResult_t r = to_nccl(call);
    slr_guard++;
    return r;
}

static const struct slr_collective scatter = {
    .decide = slr_scatter_decide, .record = slr_record_scatter, .connect = connect, .nccl = passed, .ring = to_ring};

ncclResult_t slr_reduce_scatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream)
{
    struct slr_call call = {.kind = &scatter,
                            .scatter = true,
                            .op = op,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .type = type,
                            .nccl = comm,
                            .stream = (CUstream)stream};
    return slr_process_off() ? to_nccl(&call) : slr_call_begin(&call);
}
