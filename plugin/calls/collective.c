/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/calls/collective.h"

#include <stdio.h>
#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/settings.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/abi/nccl_common.h"
#include "plugin/callers/callers.h"
#include "plugin/calls/calls.h"
#include "plugin/comm/group_kept.h"
#include "plugin/comm/call.h"
#include "plugin/comm/stream.h"
#include "plugin/connect/connect.h"
#include "plugin/gather/gather.h"
#include "plugin/hosts/hosts.h"
#include "plugin/passed/passed_alone.h"
#include "plugin/passed/turn.h"
#include "plugin/pending/pending.h"
#include "plugin/record/record.h"
#include "plugin/scatter/scatter.h"
#include "plugin/util/process.h"

/* ---- what is decided, and said ---- */

/* Bytes that the device adds at once: shards that are slipring's to choose begin at such. */
#define GRAIN ((size_t)16)

/* Both 0 when the type is unknown, or when all shards together do not fit an address space. */
static void measure(struct slr_call *call, size_t nranks)
{
    const struct slr_collective *kind = call->flow->kind;
    const bool all = kind->sends_all && kind->gets_all; /* then `count` is of all shards */
    const size_t elem = slr_type_bytes(call->type);
    size_t bytes, padded;
    call->shard = call->bytes = 0;
    if (!elem || __builtin_mul_overflow(call->count, elem, &bytes) || bytes > PTRDIFF_MAX)
        return;
    const size_t shard = all ? (bytes / nranks + (bytes % nranks != 0) + GRAIN - 1) / GRAIN * GRAIN : bytes;
    if (__builtin_mul_overflow(shard, nranks, &padded) || padded > PTRDIFF_MAX)
        return;
    call->shard = shard;
    call->bytes = all ? bytes : padded;
}

/* To be called when it has been decided, before NCCL or the program goes on: leaves the communicator's context, which
 * the decision may have entered. What the ring does in between need not enter it again, as that takes four calls of
 * the driver. */
static void leave_context(struct slr_call *call)
{
    if (call->entered)
        slr_shared_work_end();
    call->entered = false;
}

/* In doubt it captures: a captured gather that the ring took would move data once and never again.
 */
static bool captures(struct slr_call *call)
{
    call->from = slr_stream_away(call->stream, call->comm->shared.ctx);
    call->entered = slr_shared_work_begin(&call->comm->shared) == SLR_OK;
    const bool may = !call->entered || slr_stream_may_capture(call->stream);
    if (call->from) /* whose default stream it is the current context says */
        leave_context(call);
    return may;
}

/* Fills comm, which the caller puts back, and shard. SLR_R_RING: go on; else NCCL has the calls of the communicator. */
static enum slr_reason identify(struct slr_call *call)
{
    struct slr_comm *c = call->comm = slr_comm_find(call->nccl);
    measure(call, c ? (size_t)c->nranks : 1);
    return c ? c->pass : SLR_R_NOT_TRACKED;
}

/* Likewise: NCCL refuses them, or there is nothing to do. */
static enum slr_reason look_at_arguments(const struct slr_call *call)
{
    if (call->count == 0)
        return SLR_R_COUNT_ZERO;
    return call->shard && call->send && call->recv ? SLR_R_RING : SLR_R_BAD_ARGUMENT;
}

/* Facts of this rank alone (passed/passed_alone.h finds ranks that differ in them), and its error; may enter the
 * communicator's context. */
static enum slr_reason here(struct slr_call *call)
{
    if (!call->held && slr_region_gathers())
        return SLR_R_REGION;
    if (captures(call))
        return SLR_R_CAPTURE;
    if (atomic_load(&call->comm->error) != ncclSuccess)
        return SLR_R_COMM_ERROR;
    if (slr_late_settle(call->comm) == ncclInProgress)
        return SLR_R_IN_PROGRESS;
    /* Now, not when a group ends: what is passed in between belongs behind this call. */
    call->passed_alone = atomic_load(&call->comm->passed_alone);
    return SLR_R_RING;
}

/* Smaller ones are tried where calls are the ring's until they have been. */
static size_t least(const struct slr_call *call)
{
    return call->flow->kind->untried == SLR_R_RING ? call->comm->least_bytes : slr_get(SLR_S_MIN_BYTES);
}

/* NCCL connects the ranks at the communicator's first operation. Between ranks of one process it can not in a capture,
 * as that takes access to their devices (cudaDeviceEnablePeerAccess), so a program whose first call is outside of
 * captures may rely on it. A call that this rank has passed alone was NCCL's as well. */
static bool connects_nccl(const struct slr_call *call)
{
    const struct slr_comm *c = call->comm;
    return c->substituted == 0 && !call->passed_alone && slr_group_kept(c) == 0 &&
           slr_shared_any_in_one_process(&c->shared);
}

/* The same of a communicator that spans hosts: SLR_R_HOSTS. */
static enum slr_reason of_hosts(struct slr_call *call)
{
    const struct slr_flow *flow = call->flow;
    enum slr_reason why = call->count ? slr_hosts_has(call) : SLR_R_COUNT_ZERO;
    if (why != SLR_R_HOSTS)
        return why;
    why = flow->may ? flow->may(call) : SLR_R_RING;
    if (why == SLR_R_RING && flow->has)
        why = flow->has(call);
    if (why != SLR_R_RING)
        return why;
    if (slr_late_settle(call->comm) == ncclInProgress)
        return SLR_R_IN_PROGRESS;
    return flow->kind->produced ? slr_scatter_hosts_choose(call) : slr_hosts_way(call);
}

/* SLR_R_RING, or why the call stays with NCCL. Uses facts that are equal on all ranks (R1), but for arguments that NCCL
 * refuses on this rank alone, the capture state (R6) and the caller's region. */
static enum slr_reason reason_of(struct slr_call *call)
{
    const struct slr_flow *flow = call->flow;
    enum slr_reason why = identify(call);
    if (why == SLR_R_HOSTS)
        return of_hosts(call);
    if (why == SLR_R_RING && flow->may)
        why = flow->may(call);
    if (why == SLR_R_RING)
        why = look_at_arguments(call);
    if (why == SLR_R_RING && call->bytes < least(call))
        why = SLR_R_TOO_SMALL;
    if (why == SLR_R_RING && call->config) /* which NCCL wants to be alike on all ranks */
        why = SLR_R_CONFIGURED;
    if (why == SLR_R_RING && flow->has)
        why = flow->has(call);
    if (why == SLR_R_RING)
        why = here(call);
    /* Below it calls come here or not by what has been chosen until now, which ranks that capture at different times do
     * not agree about; no such capture is the ring's, nor counted. */
    if (why == SLR_R_CAPTURE && call->bytes < slr_get(SLR_S_MIN_BYTES))
        why = SLR_R_TOO_SMALL;
    if (why == SLR_R_RING && connects_nccl(call))
        why = SLR_R_NCCL_FIRST;
    return why == SLR_R_RING ? flow->choose(call) : why;
}

#define SHAPE "op=%s comm=%s crank=%d nranks=%d count=%zu dtype=%s shard=%zu in_place=%d"
#define SHAPE_OF(call)                                                                                                 \
    (call)->flow->kind->op, (call)->comm ? (call)->comm->name : "?", (call)->comm ? (call)->comm->rank : -1,           \
        (call)->comm ? (call)->comm->nranks : 0, (call)->count, slr_type_name((call)->type), (call)->shard,            \
        (int)slr_call_in_place(call)

static void say(const struct slr_call *call, enum slr_reason why)
{
    const bool moved = slr_reason_moves(why);
    if (call->flow->kind->produced)
        slr_log(SLR_LOG_INFO, moved ? "substitute" : "pass", SHAPE " made=%d reason=%s", SHAPE_OF(call),
                (int)(call->made.m != 0), slr_reason_name(why));
    else
        slr_log(SLR_LOG_INFO, moved ? "substitute" : "pass", SHAPE " reason=%s", SHAPE_OF(call), slr_reason_name(why));
}

static uint64_t key_of(const struct slr_call *call, enum slr_reason why)
{
    return slr_mix(slr_mix(call->count, (uint64_t)call->type << 8 | (uint64_t)why),
                   slr_comm_id(call->comm) ^ (uint64_t)slr_call_in_place(call) ^ (uint64_t)call->flow->kind->id << 3 ^
                       (uint64_t)(call->made.m != 0) << 2);
}

static void name_now(struct slr_call *call)
{
    call->caller = slr_caller_now(key_of(call, SLR_R_RING));
}

static void say_caller(struct slr_call *call, enum slr_reason why, uint64_t key)
{
    char caller[SLR_CALLER_TEXT];
    if (!call->caller) /* else it was in a group, and is named since then */
        name_now(call);
    if (slr_caller_of_shape(key, call->caller, caller))
        slr_log(SLR_LOG_INFO, "caller", SHAPE " reason=%s caller=%s", SHAPE_OF(call), slr_reason_name(why), caller);
}

void slr_call_note(struct slr_call *call, enum slr_reason why)
{
    if (why != SLR_R_GRAPH) /* its replays are counted */
        slr_count_call(call->flow->kind, call->bytes, why);
    /* One line for each shape and reason of a communicator; slr_log_first() keeps only the hash. */
    uint64_t key = key_of(call, why);
    if (!slr_log_enabled(SLR_LOG_INFO))
        return;
    if (slr_log_first(key))
        say(call, why);
    if (slr_callers_on())
        say_caller(call, why, key);
}

bool slr_call_nvtx(const struct slr_call *call)
{
    char what[64] = "ring";
    if (call->why != SLR_R_RING)
        snprintf(what, sizeof what, "pass: %s", slr_reason_name(call->why));
    return slr_nvtx_begin(call->flow->kind->words, what, call->bytes);
}

/* ---- the call ---- */

/* Of a call that is noted when its group ends: the program may have left by then what it is in now. */
static void name(struct slr_call *call)
{
    if (slr_callers_on() && slr_log_enabled(SLR_LOG_INFO))
        name_now(call);
}

static enum slr_reason decide(struct slr_call *call, ncclResult_t *recorded)
{
    enum slr_reason why = reason_of(call);
    if (why == SLR_R_CAPTURE)
        why = slr_record_call(call, recorded);
    if (slr_passes_alone(why))
        slr_gather_passes_alone(call, why);
    return why;
}

/* May refuse it: then all know (connect.h). */
static enum slr_reason connect(struct slr_call *call)
{
    const enum slr_reason why = slr_connect(call->comm, slr_call_slots(call));
    return why == SLR_R_RING && call->flow->can ? call->flow->can(call) : why;
}

static ncclResult_t ring_entered(const struct slr_call *call)
{
    return call->flow->ring(call, call->flow->enter || call->from);
}

/* Calls that enter by themselves, to find a GEMM that stands before them on their stream, find none on the visitor. */
static ncclResult_t enter(struct slr_call *call)
{
    if (call->flow->enter)
        return call->flow->enter(call);
    return call->from ? slr_gather_entry(call->comm, call->stream, call->from) : ncclSuccess;
}

/* To the ring at once. The order matters: the entry is where the ring may start; the sample for
 * SLIPRING_VERIFY goes to NCCL before the ring, see collective.h. */
static ncclResult_t ring(struct slr_call *call)
{
    const ncclResult_t entered = enter(call);
    if (entered != ncclSuccess)
        return entered;
    slr_gather_visit(call);
    slr_gather_number(call);
    return slr_gather_return(call, call->verify ? slr_verified_finish(call, 1, slr_verified_run(call, 1, ring_entered))
                                                : ring_entered(call));
}

static ncclResult_t keep(struct slr_call *call)
{
    name(call);
    call->kept = true;
    if (!slr_group_keep(call))
        return ncclSystemError;
    SLR_WATCH(kept, call);
    return ncclSuccess;
}

/* ---- over hosts ---- */

static ncclResult_t run_steps(struct slr_comm *inside, struct slr_call *step, unsigned count)
{
    const CUcontext from = slr_stream_away(step->stream, inside->shared.ctx);
    const bool enters = from || step->flow->enter;
    ncclResult_t r = enters ? slr_hosts_enter(inside, step->stream, from) : ncclSuccess;
    for (unsigned i = 0; i < count && r == ncclSuccess; i++) {
        step[i].from = from;
        slr_gather_visit(&step[i]);
        slr_gather_number(&step[i]);
        r = step[i].flow->ring(&step[i], enters);
    }
    return slr_gather_return(&step[0], r);
}

/* NCCL does it as well, before. */
static ncclResult_t run_verified(struct slr_call *call, struct slr_comm *inside, struct slr_call *step, unsigned count)
{
    if (slr_context_enter(inside->shared.ctx) != SLR_OK)
        return ncclUnhandledCudaError;
    ncclResult_t r = slr_verified_begin(call);
    if (r == ncclSuccess)
        r = run_steps(inside, step, count);
    slr_pending_join_stream(call->stream, SLR_R_JOIN_VERIFY, call->flow->kind->function);
    r = slr_verified_finish(call, 1, r);
    slr_shared_leave();
    return r;
}

/* Each keeps the communicator connected by itself, until the end. */
static ncclResult_t keep_steps(struct slr_comm *inside, struct slr_call *step, unsigned count, unsigned slots)
{
    for (unsigned i = 0; i < count; i++) {
        step[i].kept = true;
        if (!slr_group_keep(&step[i]))
            return ncclSystemError;
        slr_connect(inside, slots);
    }
    return ncclSuccess;
}

/* The calls of the inside that it is; at most SLR_HOSTS. */
static unsigned steps_of(const struct slr_call *call, struct slr_comm *inside, bool ring, struct slr_call *out)
{
    if (!call->flow->kind->sends_all)
        return slr_hosts_calls(call, inside, ring, out);
    out[0] = slr_scatter_of_hosts(call, inside, ring);
    return 1;
}

static bool connects(struct slr_comm *inside, const struct slr_call *step, unsigned slots)
{
    const bool ring = slr_connect(inside, slots) == SLR_R_RING;
    return ring && (!step->flow->kind->sends_all || slr_scatter_hosts_fit(step));
}

/* At once, or at the group's end. Ranks of a host are connected for each of its steps, or for none. */
static ncclResult_t over_hosts(struct slr_call *call)
{
    struct slr_call step[SLR_HOSTS];
    struct slr_comm *inside = slr_comm_inside(call->comm);
    if (!inside)
        return ncclSystemError; /* the program has ended it on another thread */
    steps_of(call, inside, true, step);
    const unsigned slots = slr_call_slots(&step[0]);
    const bool ring = connects(inside, &step[0], slots);
    const unsigned count = steps_of(call, inside, ring, step);
    ncclResult_t r = slr_comm_answer(inside);
    if (r == ncclSuccess && slr_in_group())
        r = keep_steps(inside, step, count, slots);
    else if (r == ncclSuccess)
        r = slr_hosts_verify_due(call) ? run_verified(call, inside, step, count) : run_steps(inside, step, count);
    slr_connect_end(&inside, 1);
    slr_comm_put(inside);
    return r;
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
        return keep(call);
    case SLR_R_HOSTS:
        return over_hosts(call);
    default:
        leave_context(call);
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
        leave_context(call);
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
    leave_context(call);
    slr_comm_put(call->comm);
    slr_guard--;
    return r;
}

/* ---- groups ---- */

/* NCCL has nothing to say against it, and slipring may have it. Leaves what it has found out to slr_call_make,
 * but for the caller, which may have gone on by then. */
static bool may_hold(struct slr_call *call)
{
    if (slr_region_gathers() || call->op >= ncclNumOps || call->config)
        return false;
    slr_guard++;
    const enum slr_reason whose = identify(call);
    const bool may = (whose == SLR_R_RING || whose == SLR_R_HOSTS) && look_at_arguments(call) == SLR_R_RING;
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
