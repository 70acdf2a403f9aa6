/* SPDX-License-Identifier: Apache-2.0 */
/* ncclAllGather. */
#include "plugin/calls/calls.h"
#include "plugin/calls/collective.h"
#include "plugin/gather/gather.h"
#include "plugin/passed/nccl_call.h"
#include "plugin/record/record.h"
#include "plugin/trials/trials.h"
#include "plugin/util/process.h"

static ncclResult_t enter(const struct slr_call *call)
{
    return slr_gather_entry(call->comm, call->stream);
}

static ncclResult_t ring(const struct slr_call *call, bool entered)
{
    (void)entered;
    return slr_gather_ring(call, true, SLR_R_RING);
}

/* Connecting may have refused it. */
static ncclResult_t to_nccl(struct slr_call *call)
{
    call->passed = call->comm ? ++call->comm->passed : 0;
    return slr_gather_nccl(call);
}

const struct slr_flow slr_flow_all_gather = {
    .kind = &slr_collectives[SLR_ALL_GATHER],
    .choose = slr_trials_call,
    .nccl = to_nccl,
    .enter = enter,
    .ring = ring,
    .capture = &slr_capture_gather,
    .compare = {.prepare = slr_verify_prepare, .nccl = slr_verify_run, .finish = slr_verify_finish}};

ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct slr_call call = {.flow = &slr_flow_all_gather,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .type = type,
                            .nccl = comm,
                            .stream = (CUstream)stream};
    return slr_process_off() ? slr_gather_nccl(&call) : slr_call_begin(&call);
}
