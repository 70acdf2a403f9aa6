/* SPDX-License-Identifier: Apache-2.0 */
/* ncclGroupStart/End: what slipring does with the calls between them.
 *
 * NCCL enqueues nothing before the outermost end; so does slipring. A group that holds one call is that call
 * (collective.h). In one that holds more
 *
 *   - an all-gather that the ring takes is kept. It is enqueued after the real ncclGroupEnd has
 *     enqueued NCCL's own operations;
 *   - one that is captured for the ring likewise (plugin/record/record_group.c);
 *   - every other call goes to NCCL at once, inside its own group, so NCCL has its calls in their
 *     order. A gather that the ranks can not connect for is one of these: the call itself connects,
 *     as outside of a group, because a rank that hears of the refusal at the end only would make it
 *     behind calls that are behind it on other ranks;
 *   - a communicator that is being made is kept, and agrees after the real end.
 *
 * What else the group holds never decides whether a gather is substituted. Ranks may group
 * differently (one thread for several devices here, one process each there; p2p calls on some ranks
 * only), so that would break R1. It is safe because operations of one group have no order among
 * themselves. The ring starts from the point of the stream before the real end (the entry), and
 * NCCL's kernels do not wait for the ring, so the two never wait for each other in a circle.
 * Gathers of one communicator on several streams synchronise those streams mutually, as NCCL's do.
 *
 * An end joins the pending gathers that its operations could see, as each of them would outside of
 * a group: on the streams of its gathers and of NCCL's operations, and whatever NCCL touches
 * besides in the real end, which the gate sees. Others stay pending: frameworks group single calls,
 * too, so a group end on one stream comes between a gather on another and its GEMM all the time.
 *
 * Thread-local, like NCCL's own group state.
 */
#include <stdlib.h>
#include "base/nvtx.h"
#include "plugin/comm/stream.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/calls/calls.h"
#include "plugin/calls/collective.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/hosts/hosts.h"
#include "plugin/comm/group_kept.h"
#include "plugin/passed/turn.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/order.h"
#include "plugin/record/record.h"
#include "plugin/util/process.h"
#include "plugin/memory/registration.h"
#include "plugin/tuner/tuner.h"

ncclResult_t slr_group_start(void)
{
    slr_guard++;
    ncclResult_t r = slr_real.ncclGroupStart();
    slr_guard--;
    if (r != ncclSuccess || slr_process_off())
        return r;
    slr_group_open();
    return r;
}

static void note_all(struct slr_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (!group->calls[i].comm->hosts) /* the call that it is a step of has been noted */
            slr_call_note(&group->calls[i], SLR_R_RING);
}

/* The calls have kept their communicators connected since they were kept. */
static void end_all(const struct slr_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        slr_connect_end(&group->calls[i].comm, 1);
}

static bool has_gather(const struct slr_group *group, const struct slr_comm *c)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->calls[i].comm == c)
            return true;
    return false;
}

/* NCCL's operations of one group on several streams of a communicator start after all these
 * streams, and all of them see the results. So do the ring's gathers. */
static bool several_streams(const struct slr_group *group, const struct slr_comm *c)
{
    size_t n = 0;
    for (size_t i = 0; i < group->use_count; i++)
        n += group->uses[i].comm == c;
    return n > 1;
}

/* Now, and not when it was called: of a default stream the current context says whose it is. */
static CUcontext away(const struct slr_comm *c, CUstream stream)
{
    return slr_stream_away(stream, c->shared.ctx);
}

static ncclResult_t enter(const struct slr_group_use *use)
{
    const CUcontext from = away(use->comm, use->stream);
    return use->comm->hosts ? slr_hosts_enter(use->comm, use->stream, from)
                            : slr_gather_entry(use->comm, use->stream, from);
}

/* Before the real end: enters all streams, so that the ring starts behind what is on them now. NCCL
 * works on the calls' streams, so these wait for each other. */
static ncclResult_t enter_all(const struct slr_group *group)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < group->use_count && r == ncclSuccess; i++)
        if (has_gather(group, group->uses[i].comm))
            r = enter(&group->uses[i]);
    for (size_t i = 0; i < group->use_count && r == ncclSuccess; i++)
        if (has_gather(group, group->uses[i].comm) && several_streams(group, group->uses[i].comm))
            r = slr_gather_wait_entries(group->uses[i].comm, group->uses[i].stream);
    return r;
}

/* The last gathers of each communicator may be pending. Its other streams hold them, too, so that what
 * is put on them sees these, or a GEMM there consumes one. */
static void share_all(const struct slr_group *group)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (has_gather(group, group->uses[i].comm) && several_streams(group, group->uses[i].comm))
            slr_pending_share(group->uses[i].comm->lane, group->uses[i].stream);
}

/* After all: what NCCL and the ring brought on one stream of a communicator is seen on its others,
 * but for what they hold (share_all). The ring itself does not wait for NCCL's operations: it must
 * not, because other ranks may group differently.
 */
static ncclResult_t cross_all(const struct slr_group *group)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < group->use_count && r == ncclSuccess; i++)
        for (size_t j = 0; j < group->use_count && r == ncclSuccess; j++)
            if (i != j && group->uses[i].comm == group->uses[j].comm && has_gather(group, group->uses[i].comm))
                r = slr_gather_wait_stream(group->uses[i].comm, group->uses[i].stream, group->uses[j].stream);
    return r;
}

/* NCCL's operations of a communicator that gathers nothing in this group come behind its gathers
 * before (order.h). Those of the others are on streams that have been entered, behind all joins. */
static void order_before(const struct slr_group *group)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].nccl && group->uses[i].comm && !has_gather(group, group->uses[i].comm))
            slr_order_before_nccl(group->uses[i].comm, group->uses[i].stream);
}

/* NCCL's operations of a communicator are those of the program's, where it spans hosts, and the ring's of its inside. The
 * program's; NULL: NCCL has none of it in the group. */
static struct slr_comm *told_by(const struct slr_group *group, const struct slr_comm *c)
{
    for (size_t i = 0; i < group->use_count; i++) {
        struct slr_comm *other = group->uses[i].comm;
        if (group->uses[i].nccl && other && (other == c || (c && c->hosts && other->hosts == c->hosts)))
            return other;
    }
    return NULL;
}

/* NCCL has yet to put something on a stream of the communicator, on which the ring has, too. */
static bool crosses_late(const struct slr_group *group, const struct slr_comm *c)
{
    return told_by(group, c) && has_gather(group, c) && several_streams(group, c);
}

static void order_after(const struct slr_group *group, bool later)
{
    for (size_t i = 0; i < group->use_count; i++) {
        const struct slr_group_use *use = &group->uses[i];
        const bool crosses = later && crosses_late(group, use->comm);
        if (later && (use->nccl || crosses))
            slr_late_stream(told_by(group, use->comm), use->stream, use->left ? use->in.word : SLR_NO_WORD, crosses);
        else if (use->nccl)
            slr_order_after_nccl(use->comm, use->stream);
    }
}

/* Around the real end, which enqueues them. */
static void begin_turns(struct slr_group *group)
{
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].left)
            group->uses[i].in = slr_turn_begin(group->uses[i].comm, group->uses[i].turn);
}

/* ncclSuccess, or the error that the end has to return: a communicator's that has been told of meanwhile. */
static ncclResult_t end_turns(struct slr_group *group, ncclResult_t ended)
{
    ncclResult_t told = ncclSuccess;
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].left) {
            const ncclResult_t r = slr_turn_end(group->uses[i].comm, group->uses[i].in, group->uses[i].stream, ended);
            told = r != ncclSuccess ? r : told;
        }
    return told;
}

static ncclResult_t ring_one(const struct slr_call *call)
{
    bool nvtx = slr_nvtx_on() && slr_call_nvtx(call);
    ncclResult_t r = call->flow->ring(call, true);
    slr_nvtx_end(nvtx);
    return r;
}

static ncclResult_t ring_all(struct slr_group *group)
{
    /* All numbers first: they decide which calls are verified. */
    for (size_t i = 0; i < group->count; i++)
        slr_gather_number(&group->calls[i]);
    for (size_t i = 0; i < group->count; i++) {
        struct slr_call *call = &group->calls[i];
        call->from = away(call->comm, call->stream);
        slr_gather_visit(call);
    }
    ncclResult_t r = slr_verified_run(group->calls, group->count, ring_one);
    for (size_t i = 0; i < group->count; i++)
        r = slr_gather_return(&group->calls[i], r);
    /* In this order: a gather that is joined in between was joined on a stream that is crossed. */
    share_all(group);
    if (r == ncclSuccess)
        r = cross_all(group);
    return slr_verified_finish(group->calls, group->count, r);
}

/* What the real end answers when its operations are, or will be, enqueued. */
static bool launched(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

/* The real end. NCCL enqueues in it: what functions that are not hooked have called as well, so the
 * gate joins what that touches. */
static ncclResult_t end_for_program(ncclSimInfo_t *info, bool simulate)
{
    int outer = slr_program_begin();
    /* A simulation asks the tuner, too, but nothing runs: candidates are not used up by it. */
    slr_tuner_simulating = simulate;
    ncclResult_t r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
    slr_tuner_simulating = false;
    slr_program_end(outer);
    return r;
}

/* Whose kernels NCCL launches in the end; NULL: nobody's. Of several communicators the last one's. */
static ncclComm_t launches(const struct slr_group *group)
{
    ncclComm_t comm = NULL;
    for (size_t i = 0; i < group->use_count; i++)
        if (group->uses[i].nccl && group->uses[i].comm)
            comm = group->uses[i].comm->nccl;
    return comm;
}

/* The outermost end. */
static ncclResult_t close_group(struct slr_group *group, ncclSimInfo_t *info, bool simulate)
{
    for (size_t i = 0; i < group->use_count && !simulate; i++)
        if (group->uses[i].nccl)
            slr_pending_join_stream(group->uses[i].stream, SLR_R_JOIN_OTHER_OP, "ncclGroupEnd");
    /* A gather that fails on the way in must not keep NCCL's group open. */
    ncclResult_t entered = simulate ? ncclSuccess : enter_all(group);
    struct slr_recordings *captured = simulate ? NULL : slr_record_group_enter(group);
    if (!simulate) {
        note_all(group);
        order_before(group);
        begin_turns(group);
    }
    slr_front_begin(launches(group));
    ncclResult_t r = end_for_program(info, simulate);
    slr_front_end();
    const bool late = r == ncclInProgress; /* NCCL's operations are not on their streams yet (passed/turn.h) */
    ncclResult_t told = simulate ? ncclSuccess : end_turns(group, r);
    told = told != ncclSuccess ? told : group->told;
    slr_inits_end(group->inits, simulate ? ncclInvalidUsage : r);
    /* NCCL fills the windows' handles at the end only. */
    if (r == ncclSuccess && !simulate)
        slr_registered_windows(group->windows);
    slr_windows_free(group->windows);
    if (launched(r) && entered != ncclSuccess)
        r = entered;
    if (launched(r) && !simulate) {
        ncclResult_t ring = ring_all(group);
        r = ring == ncclSuccess ? r : ring;
        order_after(group, late);
    }
    const ncclResult_t recorded = slr_record_group_end(captured, group, launched(r) && !simulate);
    r = launched(r) && recorded != ncclSuccess ? recorded : r;
    end_all(group);
    slr_group_free(group);
    return told != ncclSuccess ? told : r; /* what is healthy has been enqueued all the same */
}

/* The group was one call, which NCCL has not been told of. */
static ncclResult_t end_of_one(struct slr_group *group)
{
    struct slr_call call = group->held;
    slr_group_free(group);
    ncclResult_t r = end_for_program(NULL, false);
    if (!launched(r))
        return r;
    slr_guard--;
    r = slr_call_make(&call);
    slr_guard++;
    return r;
}

static ncclResult_t end(ncclSimInfo_t *info, bool simulate)
{
    if (simulate)
        slr_group_goes_on();
    slr_guard++;
    struct slr_group *group = slr_group_close(); /* NULL: an inner end, which only NCCL counts */
    ncclResult_t r;
    if (group && group->holds)
        r = end_of_one(group);
    else if (group)
        r = close_group(group, info, simulate);
    else
        r = simulate ? slr_real.ncclGroupSimulateEnd(info) : slr_real.ncclGroupEnd();
    slr_guard--;
    return r;
}

ncclResult_t slr_group_end(void)
{
    return end(NULL, false);
}

ncclResult_t slr_group_simulate_end(ncclSimInfo_t *info)
{
    return end(info, true);
}
