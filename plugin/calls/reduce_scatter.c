/* SPDX-License-Identifier: Apache-2.0 */
/* ncclReduceScatter: decides, and moves the call to the ring, records it for the end of its group, or
 * passes it to NCCL. As all_gather.c. */
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/callers/callers.h"
#include "plugin/calls/calls.h"
#include "plugin/calls/passed.h"
#include "plugin/calls/verified.h"
#include "plugin/comm/group_record.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/gather/nccl_turn.h"
#include "plugin/gather/passed_alone.h"
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

ncclResult_t slr_reduce_scatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream)
{
    struct slr_call call = {.scatter = true,
                            .op = op,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .type = type,
                            .nccl = comm,
                            .stream = (CUstream)stream};
    if (slr_process_off())
        return to_nccl(&call);
    slr_guard++;
    call.why = slr_scatter_decide(&call);
    ncclResult_t recorded = ncclSuccess;
    if (call.why == SLR_R_CAPTURE)
        call.why = slr_record_scatter(&call, &recorded);
    if (slr_passes_alone(call.why))
        slr_gather_passes_alone(&call, call.why);
    bool grouped = slr_in_group(), connects = call.why == SLR_R_RING;
    if (!connects || grouped)
        slr_gather_decided(&call);
    if (connects)
        call.why = connect(&call);
    if (call.why != SLR_R_RING || !grouped) /* a group counts at its end */
        slr_gather_note(&call, call.why);
    bool nvtx = slr_nvtx_on() && slr_gather_nvtx(&call);
    ncclResult_t r;
    if (call.why == SLR_R_GRAPH) {
        r = recorded;
    } else if (call.why == SLR_R_COMM_ERROR) {
        r = slr_comm_answer(call.comm);
    } else if (call.why != SLR_R_RING) {
        slr_gather_decided(&call);
        slr_guard--; /* as the hook that only notices it */
        r = to_nccl(&call);
        slr_guard++;
    } else if (grouped) {
        if (slr_callers_on() && slr_log_enabled(SLR_LOG_INFO))
            slr_gather_name(&call);
        r = slr_group_record(&call) ? ncclSuccess : ncclSystemError;
        if (r == ncclSuccess)
            connects = false; /* until the group ends */
    } else {
        r = to_ring(&call);
    }
    slr_nvtx_end(nvtx);
    if (connects)
        slr_connect_end(&call.comm, 1);
    slr_gather_decided(&call);
    slr_comm_put(call.comm);
    slr_guard--;
    return r;
}
