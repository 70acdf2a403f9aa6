/* SPDX-License-Identifier: Apache-2.0 */
/* ncclAllGather. */
#include "plugin/calls/calls.h"
#include "plugin/calls/collective.h"
#include "plugin/calls/passed.h"
#include "plugin/calls/verified.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/gather/nccl_call.h"
#include "plugin/gather/record.h"
#include "plugin/util/process.h"

static ncclResult_t ring(const struct slr_call *call)
{
    return slr_gather_ring(call, true, SLR_R_RING);
}

/* To the ring at once. The order matters: the entry is where the ring may start; the sample for
 * SLIPRING_VERIFY goes to NCCL before the ring, see verified.h. */
static ncclResult_t to_ring(struct slr_call *call)
{
    ncclResult_t r = slr_gather_entry(call->comm, call->stream);
    if (r != ncclSuccess)
        return r;
    slr_gather_number(call);
    return call->verify ? slr_verified_finish(call, 1, slr_verified_run(call, 1, ring)) : ring(call);
}

/* Connecting may have refused it. */
static ncclResult_t to_nccl(struct slr_call *call)
{
    call->passed = call->comm ? ++call->comm->passed : 0;
    return slr_gather_passed(call);
}

static enum slr_reason connect(struct slr_call *call)
{
    enum slr_reason why = SLR_R_RING;
    slr_connect(&call->comm, &why, 1);
    return why;
}

static const struct slr_collective gather = {
    .decide = slr_gather_decide, .record = slr_record_gather, .connect = connect, .nccl = to_nccl, .ring = to_ring};

ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct slr_call call = {.kind = &gather,
                            .send = send,
                            .recv = recv,
                            .count = count,
                            .type = type,
                            .nccl = comm,
                            .stream = (CUstream)stream};
    return slr_process_off() ? slr_gather_nccl(&call) : slr_call_begin(&call);
}
