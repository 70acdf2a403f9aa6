/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/calls/collective.h"

#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/callers/callers.h"
#include "plugin/calls/calls.h"
#include "plugin/comm/group_kept.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/passed/passed_alone.h"
#include "plugin/record/record.h"
#include "plugin/util/process.h"

/* ---- the call ---- */

static void name(struct slr_call *call)
{
    if (slr_callers_on() && slr_log_enabled(SLR_LOG_INFO))
        slr_call_name(call);
}

static enum slr_reason decide(struct slr_call *call, ncclResult_t *recorded)
{
    enum slr_reason why = slr_call_decide(call);
    if (why == SLR_R_CAPTURE)
        why = slr_record_call(call, recorded);
    if (slr_passes_alone(why))
        slr_gather_passes_alone(call, why);
    return why;
}

/* May refuse it: then all know (connect.h). */
static enum slr_reason connect(struct slr_call *call)
{
    enum slr_reason why = SLR_R_RING;
    slr_connect(&call->comm, &why, 1);
    return why == SLR_R_RING && call->flow->can ? call->flow->can(call) : why;
}

static ncclResult_t ring_entered(const struct slr_call *call)
{
    return call->flow->ring(call, call->flow->enter != NULL);
}

/* To the ring at once. The order matters: the entry is where the ring may start; the sample for
 * SLIPRING_VERIFY goes to NCCL before the ring, see collective.h. */
static ncclResult_t ring(struct slr_call *call)
{
    const ncclResult_t entered = call->flow->enter ? call->flow->enter(call) : ncclSuccess;
    if (entered != ncclSuccess)
        return entered;
    slr_gather_number(call);
    return call->verify ? slr_verified_finish(call, 1, slr_verified_run(call, 1, ring_entered)) : ring_entered(call);
}

static ncclResult_t run(struct slr_call *call, ncclResult_t recorded)
{
    switch (call->why) {
    case SLR_R_GRAPH:
        return recorded;
    case SLR_R_COMM_ERROR:
        return slr_comm_answer(call->comm);
    case SLR_R_RING:
        if (!slr_in_group())
            return ring(call);
        name(call);
        return slr_group_keep(call) ? ncclSuccess : ncclSystemError;
    default:
        slr_call_decided(call);
        return call->flow->nccl(call);
    }
}

ncclResult_t slr_call_make(struct slr_call *call)
{
    /* What is called from here is slipring's, not the program's: hooks pass it on unseen. */
    slr_guard++;
    ncclResult_t recorded = ncclSuccess;
    call->why = decide(call, &recorded);
    /* The first one connects the ranks (connect.h), which may refuse: then NCCL has the call. In a
     * group, too: group.c. */
    const bool grouped = slr_in_group(), connects = call->why == SLR_R_RING;
    if (!connects || grouped)
        slr_call_decided(call);
    if (connects)
        call->why = connect(call);
    const bool kept = call->why == SLR_R_RING && grouped; /* until the group ends, where it counts */
    if (!kept)
        slr_call_note(call, call->why);
    const bool nvtx = slr_nvtx_on() && slr_call_nvtx(call);
    const ncclResult_t r = run(call, recorded);
    slr_nvtx_end(nvtx);
    if (connects && !(kept && r == ncclSuccess))
        slr_connect_end(&call->comm, 1);
    slr_call_decided(call);
    slr_comm_put(call->comm);
    slr_guard--;
    return r;
}

/* ---- groups ---- */

/* NCCL has nothing to say against it, and slipring may have it. Leaves what it has found out to slr_call_make,
 * but for the caller, which may have gone on by then. */
static bool may_hold(struct slr_call *call)
{
    if (slr_region_gathers() || call->op >= ncclNumOps)
        return false;
    slr_guard++;
    const bool may = slr_call_identify(call) == SLR_R_RING && slr_call_arguments(call) == SLR_R_RING;
    if (may)
        name(call);
    slr_comm_put(call->comm);
    call->comm = NULL;
    slr_guard--;
    return may;
}

ncclResult_t slr_call_begin(struct slr_call *call)
{
    struct slr_group *group = slr_group_now();
    if (!group || group->begun || !may_hold(call)) {
        slr_group_goes_on();
        return slr_call_make(call);
    }
    group->begun = group->holds = call->held = true;
    group->held = *call;
    return ncclSuccess;
}

void slr_group_goes_on(void)
{
    struct slr_group *group = slr_group_now();
    if (!group)
        return;
    group->begun = true;
    if (!group->holds)
        return;
    group->holds = false;
    const ncclResult_t r = slr_call_make(&group->held);
    if (r != ncclSuccess)
        group->told = r;
}
