/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/call.h"
#include "plugin/scatter/scatter.h"

#include <stdlib.h>
#include "base/counters.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/status.h"
#include "kernels/scatter.h"
#include "plugin/comm/stream.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/util/host_memory.h"
#include "plugin/abi/nccl_common.h"

/* Host memory for all that is compared at a time. */
#define WINDOW ((size_t)16 << 20)
#define PAGE ((size_t)4096)

/* What this rank receives. */
static size_t received(const struct slr_call *call)
{
    return call->flow->kind->gets_all ? call->bytes : call->shard;
}

/* Where in `send` that lies which the rank receives the sum of. */
static size_t sent_at(const struct slr_call *call, int rank)
{
    return call->flow->kind->gets_all ? 0 : (size_t)rank * call->shard;
}

/* ---- what it is compared with ---- */

static enum slr_status allocate(struct slr_call *call)
{
    struct slr_compared *m = &call->compared;
    const size_t all = received(call) * (size_t)call->comm->nranks, bytes = all + received(call);
    *m = (struct slr_compared){0};
    if (slr_real.cuMemAlloc(&m->memory, bytes) != CUDA_SUCCESS)
        SLR_TRY(slr_host_memory(&m->host, &m->memory, bytes));
    m->inputs = m->memory;
    m->sums = m->memory + all;
    return SLR_OK;
}

static enum slr_status prepare(struct slr_call *call)
{
    struct slr_compared *m = &call->compared;
    const CUdeviceptr send = (CUdeviceptr)(uintptr_t)call->send;
    const int rank = call->comm->rank;
    SLR_TRY(allocate(call));
    return SLR_CU(cuMemcpyAsync, m->inputs + (size_t)rank * received(call), send + sent_at(call, rank), received(call),
                  call->stream);
}

ncclResult_t slr_verify_sum_prepare(struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    const CUstream name = slr_stream_name(call->stream, false);
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    slr_pending_join_stream(call->stream, SLR_R_JOIN_VERIFY, call->flow->kind->function);
    slr_order_before_nccl(c, name);
    enum slr_status s = slr_shared_enter(&c->shared);
    if (s == SLR_OK) {
        s = prepare(call);
        slr_shared_leave();
    }
    if (s != SLR_OK) /* the other ranks' NCCL would wait for this one's */
        slr_comm_fail(c, s, -1, "there is no memory for the comparison with NCCL");
    return slr_comm_answer(c);
}

ncclResult_t slr_verify_sum_run(const struct slr_call *call)
{
    const struct slr_compared *m = &call->compared;
    return slr_scatter_real(call, (void *)(uintptr_t)m->sums);
}

ncclResult_t slr_verify_sum_inputs(const struct slr_call *call)
{
    const struct slr_compared *m = &call->compared;
    const char *send = call->send;
    ncclResult_t r = ncclSuccess;
    for (int peer = 0; peer < call->comm->nranks && r == ncclSuccess; peer++) {
        if (peer == call->comm->rank)
            continue;
        r = slr_real.ncclSend(send + sent_at(call, peer), call->count, call->type, peer, call->nccl,
                              (cudaStream_t)call->stream);
        if (r == ncclSuccess)
            r = slr_real.ncclRecv((void *)(uintptr_t)(m->inputs + (size_t)peer * received(call)), call->count,
                                  call->type, peer, call->nccl, (cudaStream_t)call->stream);
    }
    return r;
}

/* ---- the comparison ---- */

/* The windows of all contributions, of the ring's sums and of NCCL's, one behind the other. */
static enum slr_status fetch(const struct slr_call *call, uint8_t *host, size_t at, size_t bytes)
{
    const int n = call->comm->nranks;
    for (int r = 0; r < n; r++)
        SLR_TRY(SLR_CU(cuMemcpyDtoH, host + (size_t)r * bytes, call->compared.inputs + (size_t)r * received(call) + at,
                       bytes));
    SLR_TRY(SLR_CU(cuMemcpyDtoH, host + (size_t)n * bytes, (CUdeviceptr)(uintptr_t)call->recv + at, bytes));
    return SLR_CU(cuMemcpyDtoH, host + (size_t)(n + 1) * bytes, call->compared.sums + at, bytes);
}

static struct slr_sum_found look(const struct slr_call *call, const uint8_t *host, size_t bytes)
{
    const int n = call->comm->nranks;
    struct slr_checked_sums s = {.n = n,
                                 .divisor = slr_scatter_divisor(call),
                                 .ours = host + (size_t)n * bytes,
                                 .other = host + (size_t)(n + 1) * bytes,
                                 .count = bytes / slr_type_bytes(call->type)};
    slr_scatter_type(call->type, &s.type);
    for (int r = 0; r < n; r++)
        s.in[r] = host + (size_t)r * bytes;
    return slr_reduce_check(&s);
}

/* found->at: of the whole shard. */
static enum slr_status compare(const struct slr_call *call, struct slr_sum_found *found)
{
    const size_t most = WINDOW / (size_t)(call->comm->nranks + 2) / PAGE * PAGE, all = received(call),
                 window = all < most ? all : most;
    uint8_t *host = malloc(window * (size_t)(call->comm->nranks + 2));
    enum slr_status s = host ? SLR_OK : SLR_NOMEM;
    *found = (struct slr_sum_found){0};
    for (size_t at = 0; at < all && s == SLR_OK && found->fault == SLR_SUM_RIGHT; at += window) {
        const size_t bytes = all - at < window ? all - at : window;
        s = fetch(call, host, at, bytes);
        if (s == SLR_OK)
            *found = look(call, host, bytes);
        found->at += at / slr_type_bytes(call->type);
    }
    free(host);
    return s;
}

/* Says once for each verified call how it came out. */
static void verdict(const struct slr_call *call, const struct slr_sum_found *found)
{
    const struct slr_comm *c = call->comm;
    const bool bits = found->fault == SLR_SUM_BITS;
    atomic_fetch_add(&slr_counters.verified, 1);
    if (found->fault == SLR_SUM_RIGHT) {
        slr_log(SLR_LOG_DEBUG, "verified", "op=%s comm=%s crank=%d call=%llu bytes=%zu", call->flow->kind->op, c->name,
                c->rank, (unsigned long long)call->number, received(call));
        return;
    }
    atomic_fetch_add(&slr_counters.verify_bad, 1);
    slr_log(SLR_LOG_ERROR, "verify_differs",
            "op=%s comm=%s crank=%d call=%llu shard=%zu offset=%zu check=%s have=%x want=%x msg=%s",
            call->flow->kind->op, c->name, c->rank, (unsigned long long)call->number, call->shard,
            found->at * slr_type_bytes(call->type), bits ? "sum" : "nccl", (unsigned)found->have, (unsigned)found->want,
            bits ? "the ring's result is not the sum of what the ranks sent"
                 : "the ring's sum and NCCL's differ by more than rounding explains");
}

/* Blocks the host until the stream is idle, which a program that verifies has asked for. */
static enum slr_status judge(const struct slr_call *call)
{
    struct slr_sum_found found;
    SLR_TRY(SLR_CU(cuStreamSynchronize, call->stream));
    SLR_TRY(compare(call, &found));
    verdict(call, &found);
    if (found.fault == SLR_SUM_RIGHT)
        return SLR_OK;
    /* The application goes on with NCCL's bytes: they are what it would have had. */
    SLR_TRY(
        SLR_CU(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)call->recv, call->compared.sums, received(call), call->stream));
    return SLR_CU(cuStreamSynchronize, call->stream);
}

static void release(const struct slr_compared *m)
{
    if (m->host)
        slr_host_memory_free(m->host);
    else
        slr_cu_status(slr_real.cuMemFree(m->memory), "cuMemFree");
}

ncclResult_t slr_verify_sum_finish(const struct slr_call *call, ncclResult_t r)
{
    if (!call->compared.memory || slr_shared_enter(&call->comm->shared) != SLR_OK)
        return r;
    bool nvtx = slr_nvtx_begin("verify", "", received(call));
    if (r == ncclSuccess && judge(call) != SLR_OK)
        r = ncclUnhandledCudaError;
    slr_nvtx_end(nvtx);
    release(&call->compared);
    slr_shared_leave();
    return r;
}
