/* SPDX-License-Identifier: Apache-2.0 */
/* The decision on one all-gather, and how it is counted and logged. */
#include <stdio.h>
#include "base/counters.h"
#include "base/cu.h"
#include "cache/captures.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "plugin/callers/callers.h"
#include "plugin/gather/gather.h"
#include "plugin/trials/trials.h"
#include "plugin/util/nccl_type.h"
#include "plugin/util/region.h"

/* 0 when the type is unknown, or when all shards together do not fit an address space. */
static size_t shard_bytes(const struct slr_call *call, int nranks)
{
    size_t elem = slr_type_bytes(call->type), bytes, all;
    if (!elem || __builtin_mul_overflow(call->count, elem, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)nranks, &all) || all > PTRDIFF_MAX)
        return 0;
    return bytes;
}

/* In doubt it captures: a captured gather that the ring took would move data once and never again.
 */
static bool captures(struct slr_call *call)
{
    call->entered = slr_shared_work_begin(&call->comm->shared) == SLR_OK;
    return !call->entered || slr_stream_may_capture(call->stream);
}

void slr_gather_decided(struct slr_call *call)
{
    if (call->entered)
        slr_shared_work_end();
    call->entered = false;
}

enum slr_reason slr_gather_identify(struct slr_call *call)
{
    struct slr_comm *c = call->comm = slr_comm_find(call->nccl);
    call->shard = shard_bytes(call, c ? c->nranks : 1);
    return c ? c->pass : SLR_R_NOT_TRACKED;
}

enum slr_reason slr_gather_arguments(const struct slr_call *call)
{
    if (call->count == 0)
        return SLR_R_COUNT_ZERO;
    return call->shard && call->send && call->recv ? SLR_R_RING : SLR_R_BAD_ARGUMENT;
}

enum slr_reason slr_gather_here(struct slr_call *call)
{
    if (!call->held && slr_region_gathers())
        return SLR_R_REGION;
    if (captures(call))
        return SLR_R_CAPTURE;
    if (atomic_load(&call->comm->error) != ncclSuccess)
        return SLR_R_COMM_ERROR;
    /* Now, not when a group ends: what is passed in between belongs behind this call. */
    call->passed_alone = atomic_load(&call->comm->passed_alone);
    return SLR_R_RING;
}

enum slr_reason slr_gather_decide(struct slr_call *call)
{
    enum slr_reason why = slr_gather_identify(call);
    if (why == SLR_R_RING)
        why = slr_gather_arguments(call);
    if (why == SLR_R_RING && call->shard * (size_t)call->comm->nranks < call->comm->least_bytes)
        why = SLR_R_TOO_SMALL;
    if (why == SLR_R_RING)
        why = slr_gather_here(call);
    /* Below it calls come here or not by what has been chosen until now, which ranks that capture at different times do
     * not agree about; no such capture is the ring's, nor counted. */
    if (why == SLR_R_CAPTURE && call->shard * (size_t)call->comm->nranks < slr_get(SLR_S_MIN_BYTES))
        why = SLR_R_TOO_SMALL;
    return why == SLR_R_RING ? slr_trials_call(call) : why;
}

static void count(const struct slr_call *call, enum slr_reason why)
{
    uint64_t bytes = call->shard * (size_t)(call->comm ? call->comm->nranks : 1);
    if (why == SLR_R_GRAPH) /* its replays are counted */
        return;
    if (call->scatter) {
        atomic_fetch_add(&slr_counters.scatters, 1);
        atomic_fetch_add(&slr_counters.scatters_substituted, why == SLR_R_RING);
        slr_count_scatter(why);
        return;
    }
    atomic_fetch_add(&slr_counters.gathers, 1);
    atomic_fetch_add(&slr_counters.bytes, bytes);
    slr_count(why);
    if (why != SLR_R_RING)
        return;
    atomic_fetch_add(&slr_counters.substituted, 1);
    atomic_fetch_add(&slr_counters.substituted_bytes, bytes);
}

static void say(const struct slr_call *call, enum slr_reason why)
{
    const struct slr_comm *c = call->comm;
    const bool moved = why == SLR_R_RING || why == SLR_R_GRAPH;
    if (call->scatter)
        slr_log(
            SLR_LOG_INFO, moved ? "substitute" : "pass",
            "op=reducescatter comm=%s crank=%d nranks=%d count=%zu dtype=%s shard=%zu in_place=%d made=%d reason=%s",
            c ? c->name : "?", c ? c->rank : -1, c ? c->nranks : 0, call->count, slr_type_name(call->type), call->shard,
            (int)slr_call_in_place(call), (int)(call->made.m != 0), slr_reason_name(why));
    else
        slr_log(SLR_LOG_INFO, moved ? "substitute" : "pass",
                "op=allgather comm=%s crank=%d nranks=%d count=%zu dtype=%s shard=%zu in_place=%d reason=%s",
                c ? c->name : "?", c ? c->rank : -1, c ? c->nranks : 0, call->count, slr_type_name(call->type),
                call->shard, (int)slr_call_in_place(call), slr_reason_name(why));
}

static uint64_t key_of(const struct slr_call *call, enum slr_reason why)
{
    return slr_mix(slr_mix(call->count, (uint64_t)call->type << 8 | (uint64_t)why),
                   slr_comm_id(call->comm) ^ (uint64_t)slr_call_in_place(call) ^ (uint64_t)call->scatter << 1 ^
                       (uint64_t)(call->made.m != 0) << 2);
}

void slr_gather_name(struct slr_call *call)
{
    call->caller = slr_caller_now(key_of(call, SLR_R_RING));
}

static void say_caller(struct slr_call *call, enum slr_reason why, uint64_t key)
{
    const struct slr_comm *c = call->comm;
    char caller[SLR_CALLER_TEXT];
    if (!call->caller) /* else it was in a group, and is named since then */
        slr_gather_name(call);
    if (slr_caller_of_shape(key, call->caller, caller))
        slr_log(SLR_LOG_INFO, "caller",
                "op=%s comm=%s crank=%d nranks=%d count=%zu dtype=%s shard=%zu in_place=%d reason=%s caller=%s",
                call->scatter ? "reducescatter" : "allgather", c ? c->name : "?", c ? c->rank : -1, c ? c->nranks : 0,
                call->count, slr_type_name(call->type), call->shard, (int)slr_call_in_place(call), slr_reason_name(why),
                caller);
}

void slr_gather_note(struct slr_call *call, enum slr_reason why)
{
    count(call, why);
    /* One line for each shape and reason of a communicator; slr_log_first() keeps only the hash. */
    uint64_t key = key_of(call, why);
    if (!slr_log_enabled(SLR_LOG_INFO))
        return;
    if (slr_log_first(key))
        say(call, why);
    if (slr_callers_on())
        say_caller(call, why, key);
}

bool slr_gather_nvtx(const struct slr_call *call)
{
    char what[64] = "ring";
    if (call->why != SLR_R_RING)
        snprintf(what, sizeof what, "pass: %s", slr_reason_name(call->why));
    return slr_nvtx_begin(call->scatter ? "reduce-scatter" : "all-gather", what,
                          call->shard * (uint64_t)(call->comm ? call->comm->nranks : 1));
}
