#include "plugin/gather.h"

#include <stdio.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "cache/blocks.h"
#include "plugin/comm_hooks.h"
#include "plugin/explore.h"
#include "plugin/group.h"
#include "plugin/left.h"
#include "plugin/pending_impl.h"
#include "plugin/process.h"
#include "plugin/profile.h"
#include "plugin/region.h"
#include "plugin/symmetry.h"
#include "plugin/terms.h"
#include "plugin/trace.h"
#include "plugin/tuner.h"
#include "plugin/verify.h"
#include "plugin/watchdog.h"

/* NCCL's data types: name for logs, bytes. */
static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [ncclInt8] = {"int8", 1},     [ncclUint8] = {"uint8", 1},     [ncclInt32] = {"int32", 4},
    [ncclUint32] = {"uint32", 4}, [ncclInt64] = {"int64", 8},     [ncclUint64] = {"uint64", 8},
    [ncclFloat16] = {"fp16", 2},  [ncclFloat32] = {"fp32", 4},    [ncclFloat64] = {"fp64", 8},
    [ncclBfloat16] = {"bf16", 2}, [ncclFloat8e4m3] = {"e4m3", 1}, [ncclFloat8e5m2] = {"e5m2", 1},
};

static bool known_type(ncclDataType_t type)
{
    return (size_t)type < sizeof types / sizeof *types && types[type].bytes;
}

const char *slr_type_name(ncclDataType_t type)
{
    return known_type(type) ? types[type].name : "?";
}

size_t slr_type_bytes(ncclDataType_t type)
{
    return known_type(type) ? types[type].bytes : 0;
}

static size_t shard_bytes(const struct slr_call *call, int nranks)
{
    size_t elem = slr_type_bytes(call->type), bytes, all;
    if (!elem || __builtin_mul_overflow(call->count, elem, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)nranks, &all) || all > PTRDIFF_MAX)
        return 0;
    return bytes;
}

static bool captures(const struct slr_call *call)
{
    if (slr_shared_enter(&call->comm->shared) != SLR_OK)
        return true;
    bool yes = slr_stream_captures(call->stream);
    slr_shared_leave();
    return yes;
}

enum slr_reason slr_gather_decide(struct slr_call *call)
{
    struct slr_comm *c = call->comm = slr_comm_find(call->nccl);
    call->shard = shard_bytes(call, c ? c->nranks : 1);
    if (!c)
        return SLR_R_NOT_TRACKED;
    if (c->pass != SLR_R_RING)
        return c->pass;
    if (call->count == 0)
        return SLR_R_COUNT_ZERO;
    if (!call->shard || !call->send || !call->recv)
        return SLR_R_BAD_ARGUMENT;
    if (call->shard * (size_t)c->nranks < slr_get(SLR_S_MIN_BYTES))
        return SLR_R_TOO_SMALL;
    if (slr_region_gathers())
        return SLR_R_REGION;
    if (captures(call))
        return SLR_R_CAPTURE;
    if (atomic_load(&c->error) != ncclSuccess)
        return SLR_R_COMM_ERROR;
    call->left = atomic_load(&c->left);
    return SLR_R_RING;
}

static void count(const struct slr_call *call, enum slr_reason why)
{
    uint64_t bytes = call->shard * (size_t)(call->comm ? call->comm->nranks : 1);
    atomic_fetch_add(&slr_counters.gathers, 1);
    atomic_fetch_add(&slr_counters.bytes, bytes);
    slr_count(why);
    if (why != SLR_R_RING)
        return;
    atomic_fetch_add(&slr_counters.substituted, 1);
    atomic_fetch_add(&slr_counters.substituted_bytes, bytes);
}

bool slr_gather_in_place(const struct slr_call *call)
{
    return call->comm && (const char *)call->send == (const char *)call->recv + (size_t)call->comm->rank * call->shard;
}

void slr_gather_note(const struct slr_call *call, enum slr_reason why)
{
    const struct slr_comm *c = call->comm;
    count(call, why);
    uint64_t key = slr_mix(slr_mix(call->count, (uint64_t)call->type << 8 | (uint64_t)why),
                           slr_comm_id(c) ^ (uint64_t)slr_gather_in_place(call));
    if (!slr_log_enabled(SLR_LOG_INFO) || !slr_log_first(key))
        return;
    slr_log(SLR_LOG_INFO, why == SLR_R_RING ? "substitute" : "pass",
            "op=allgather comm=%s crank=%d nranks=%d count=%zu dtype=%s shard=%zu in_place=%d reason=%s",
            c ? c->name : "?", c ? c->rank : -1, c ? c->nranks : 0, call->count, slr_type_name(call->type), call->shard,
            (int)slr_gather_in_place(call), slr_reason_name(why));
}

ncclResult_t slr_gather_nccl(const struct slr_call *call)
{
    /* The guard is up in the real call, so its launches pass the driver gate without a join. */
    slr_pending_join_stream(call->stream, false, SLR_R_JOIN_OTHER_OP, "ncclAllGather");
    slr_nccl_begin(call->nccl, (cudaStream_t)call->stream);
    if (call->comm)
        slr_tuner_gather_passes(call->comm->tuner, call->stream);
    struct slr_profiled profiled = {
        .comm = call->comm ? call->comm->name : NULL, .call = call->passed, .why = call->why};
    slr_profiled = call->comm ? &profiled : NULL;
    slr_guard++;
    ncclResult_t r =
        slr_real.ncclAllGather(call->send, call->recv, call->count, call->type, call->nccl, (cudaStream_t)call->stream);
    slr_guard--;
    slr_profiled = NULL;
    return slr_nccl_end(call->nccl, (cudaStream_t)call->stream, r);
}

/* Does one thing to the ring and the call's stream. */
static ncclResult_t order(const struct slr_call *call, enum slr_status (*how)(struct slr_comm *, CUstream),
                          const char *failure)
{
    struct slr_comm *c = call->comm;
    enum slr_status s = slr_shared_enter(&c->shared);
    if (s == SLR_OK) {
        slr_comm_lock(c);
        s = how(c, call->stream);
        slr_comm_unlock(c);
        slr_shared_leave();
    }
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, failure);
    return slr_comm_answer(c);
}

static enum slr_status enter_in_order(struct slr_comm *c, CUstream stream)
{
    SLR_TRY(slr_order_before_gather(c, slr_stream_name(stream, false)));
    return slr_ring_entry(&c->ring, stream);
}

static enum slr_status meet(struct slr_comm *c, CUstream stream)
{
    return slr_ring_wait_entries(&c->ring, stream);
}

ncclResult_t slr_gather_entry(const struct slr_call *call)
{
    if (slr_comm_answer(call->comm) != ncclSuccess)
        return slr_comm_answer(call->comm);
    /* What this call sends may be what an earlier one on the stream is still gathering. */
    slr_pending_join_stream(call->stream, false, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    return order(call, enter_in_order, "the ring could not be ordered after the application's stream");
}

ncclResult_t slr_gather_meet(const struct slr_call *call)
{
    return order(call, meet, "the streams of a group could not be ordered");
}

ncclResult_t slr_gather_cross(struct slr_comm *comm, CUstream from, CUstream to)
{
    enum slr_status s = slr_shared_enter(&comm->shared);
    if (s == SLR_OK) {
        slr_comm_lock(comm);
        s = slr_ring_wait_stream(&comm->ring, from, to);
        slr_comm_unlock(comm);
        slr_shared_leave();
    }
    if (s != SLR_OK)
        slr_comm_fail(comm, s, -1, "the streams of a group could not be ordered");
    return slr_comm_answer(comm);
}

static void count_routes(const struct slr_comm *c, const struct slr_route *route)
{
    static _Atomic uint64_t *const counter[] = {[SLR_BY_SLOT] = &slr_counters.staged,
                                                [SLR_ZERO_COPY] = &slr_counters.zero_copy,
                                                [SLR_BY_PUSH] = &slr_counters.pushed};
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            atomic_fetch_add_explicit(counter[route[r].delivery], 1, memory_order_relaxed);
}

/* Whether this rank, where it comes to the call before an owner, lets it write into the receive buffer. Who writes has
 * to be told before anything waits, so memory that can not be named is not asked for that early. */
static bool may_put(const struct slr_call *call, const struct slr_place *recv)
{
    return call->comm->put && recv->generation && recv->offset + call->shard * (size_t)call->comm->nranks <= recv->size;
}

/* What this rank takes from its peers is agreed as late as it can be, so that more of them have said where their shards
 * are; but peers that are to write into its buffer must know before anything waits. */
static enum slr_status run_ring(const struct slr_call *call, const struct slr_place *recv, const struct slr_gather *g,
                                struct slr_route *route)
{
    struct slr_ring *ring = &call->comm->ring;
    bool put = may_put(call, recv);
    if (put)
        slr_terms_reader(call, recv, route);
    SLR_TRY(slr_ring_begin(ring, g));
    if (!put)
        slr_terms_reader(call, NULL, route);
    return slr_ring_finish(ring, g);
}

/* Under the communicator's lock. */
static enum slr_status enqueue(const struct slr_call *call, const struct slr_place *send, const struct slr_place *recv)
{
    struct slr_comm *c = call->comm;
    struct slr_route route[SLR_MAX_RANKS] = {0};
    struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)call->send,
                           .recv = (CUdeviceptr)(uintptr_t)call->recv,
                           .stream = call->stream,
                           .route = route};
    g.plan = slr_plan_make(call->shard, c->nranks, c->ring.slot, (uint32_t)slr_get(SLR_S_CHUNKS));
    SLR_TRY(slr_shared_enter(&c->shared));
    slr_trace_begin(call);
    slr_offers_begin(c, call->number);
    slr_terms_owner(call, send, route);
    enum slr_status s = run_ring(call, recv, &g, route);
    if (s == SLR_OK)
        s = slr_order_after_gather(c, slr_stream_name(call->stream, false));
    slr_shared_leave();
    slr_offers_end(c, call->number);
    count_routes(c, route);
    slr_trace_enqueued(c, &g, s);
    g.route = NULL;
    c->pending.gather = g;
    return s;
}

void slr_gather_number(struct slr_call *call)
{
    call->verify = slr_verify_due(call->comm);
    call->number = ++call->comm->substituted;
}

/* Memory that gathers use is worth keeping when the application frees it, and worth looking at when it is not known. */
static void met(struct slr_comm *c, const struct slr_place *at, const void *p, size_t bytes)
{
    if (at->generation && !at->collective)
        slr_block_mark_collective(at->generation);
    if (!at->generation)
        slr_offers_unknown(c, (CUdeviceptr)(uintptr_t)p, bytes);
}

ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why)
{
    struct slr_comm *c = call->comm;
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    struct slr_place send = slr_block_find((CUdeviceptr)(uintptr_t)call->send);
    struct slr_place recv = slr_block_find((CUdeviceptr)(uintptr_t)call->recv);
    slr_comm_lock(c);
    slr_pending_join(c, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    slr_symmetry_publish(call, &send, &recv);
    enum slr_status s = enqueue(call, &send, &recv);
    if (s == SLR_OK) {
        met(c, &send, call->send, call->shard);
        if (c->put || recv.generation)
            met(c, &recv, call->recv, call->shard * (size_t)c->nranks);
        slr_pending_add(c);
        if (call->verify || !defer || call->stream == CU_STREAM_PER_THREAD)
            slr_pending_join(c,
                             call->verify ? SLR_R_JOIN_VERIFY
                             : !defer     ? why
                                          : SLR_R_JOIN_PER_THREAD,
                             "ncclAllGather");
    }
    slr_comm_unlock(c);
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the gather could not be enqueued");
    slr_watchdog_look_failed(c); /* what was published by a rank that has failed is not to be relied on */
    return slr_comm_answer(c);
}

bool slr_gather_nvtx(const struct slr_call *call)
{
    char what[64] = "ring";
    if (call->why != SLR_R_RING)
        snprintf(what, sizeof what, "pass: %s", slr_reason_name(call->why));
    return slr_nvtx_begin("all-gather", what, call->shard * (uint64_t)(call->comm ? call->comm->nranks : 1));
}

static ncclResult_t move(struct slr_call *call)
{
    ncclResult_t r = slr_gather_entry(call);
    if (r != ncclSuccess)
        return r;
    slr_gather_number(call);
    r = slr_verify_start(call, 1);
    if (r == ncclSuccess)
        r = slr_gather_ring(call, true, SLR_R_RING);
    return slr_verify_finish(call, 1, r);
}

ncclResult_t slr_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct slr_call call = {
        .send = send, .recv = recv, .count = count, .type = type, .nccl = comm, .stream = (CUstream)stream};
    if (slr_process_off())
        return slr_gather_nccl(&call);
    slr_guard++;
    enum slr_reason why = call.why = slr_gather_decide(&call);
    if (slr_left_alone(why))
        slr_left_call(&call, why);
    bool grouped = slr_in_group(), counted = why == SLR_R_RING && !grouped; /* connect.h */
    if (counted) {
        slr_connect(&call.comm, &why, 1);
        call.why = why;
    }
    if (why != SLR_R_RING || !grouped) /* a group connects, and notes, at its end */
        slr_gather_note(&call, why);
    bool marked = slr_nvtx_on() && slr_gather_nvtx(&call);
    ncclResult_t r;
    if (why == SLR_R_COMM_ERROR) {
        r = slr_comm_answer(call.comm);
    } else if (why != SLR_R_RING) {
        call.passed = call.comm ? ++call.comm->passed : 0;
        r = slr_trace_passed(&call);
    } else if (grouped) {
        r = slr_group_record(&call) ? ncclSuccess : ncclSystemError;
    } else {
        r = move(&call);
    }
    slr_nvtx_end(marked);
    if (counted)
        slr_connect_end(&call.comm, 1);
    slr_comm_put(call.comm);
    slr_guard--;
    return r;
}
