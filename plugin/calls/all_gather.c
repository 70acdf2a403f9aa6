/* SPDX-License-Identifier: Apache-2.0 */
/* ncclAllGather: decides, and moves the call to the ring, records it for the end of its group, or
 * passes it to NCCL. */
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/callers/callers.h"
#include "plugin/calls/calls.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/comm/group_record.h"
#include "plugin/gather/passed_alone.h"
#include "plugin/gather/nccl_call.h"
#include "plugin/gather/record.h"
#include "plugin/calls/passed.h"
#include "plugin/calls/verified.h"
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

ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct slr_call call = {
        .send = send, .recv = recv, .count = count, .type = type, .nccl = comm, .stream = (CUstream)stream};
    if (slr_process_off())
        return slr_gather_nccl(&call);
    /* What is called from here is slipring's, not the program's: hooks pass it on unseen. */
    slr_guard++;
    enum slr_reason why = call.why = slr_gather_decide(&call);
    ncclResult_t recorded = ncclSuccess;
    if (why == SLR_R_CAPTURE)
        why = call.why = slr_record_gather(&call, &recorded);
    if (slr_passes_alone(why))
        slr_gather_passes_alone(&call, why);
    /* The first gather connects the ranks (connect.h), which may refuse: then NCCL has the call. In a
     * group, too: group.c. */
    bool grouped = slr_in_group(), connects = why == SLR_R_RING;
    if (!connects || grouped)
        slr_gather_decided(&call);
    if (connects) {
        slr_connect(&call.comm, &why, 1);
        call.why = why;
    }
    if (why != SLR_R_RING || !grouped) /* a group counts at its end */
        slr_gather_note(&call, why);
    bool nvtx = slr_nvtx_on() && slr_gather_nvtx(&call);
    ncclResult_t r;
    if (why == SLR_R_GRAPH) {
        r = recorded;
    } else if (why == SLR_R_COMM_ERROR) {
        r = slr_comm_answer(call.comm);
    } else if (why != SLR_R_RING) {
        slr_gather_decided(&call); /* connecting may have refused it */
        call.passed = call.comm ? ++call.comm->passed : 0;
        r = slr_gather_passed(&call);
    } else if (grouped) {
        if (slr_callers_on() && slr_log_enabled(SLR_LOG_INFO))
            slr_gather_name(&call);
        r = slr_group_record(&call) ? ncclSuccess : ncclSystemError;
        connects = r != ncclSuccess; /* else until the group ends */
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
