/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/call.h"
#include "plugin/gather/gather.h"

#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/settings.h"
#include "base/status.h"
#include "plugin/passed/nccl_call.h"

/* Host memory for one side: gathers are compared in windows, so that none needs as much again. */
#define WINDOW ((size_t)8 << 20)

bool slr_verify_due(const struct slr_comm *c)
{
    uint64_t every = slr_get(SLR_S_VERIFY);
    /* A gather over hosts is compared as a whole: hosts/hosts.h. */
    return every && !c->hosts && c->substituted % every == 0;
}

/* First differing byte of [0, n), or n. */
static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t n)
{
    if (!memcmp(a, b, n)) /* the usual case, at the speed of memory */
        return n;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    return i;
}

struct windows {
    uint8_t *ours, *theirs;
};

/* Offset of the first difference, `bytes` when there is none. */
static enum slr_status compare(const struct windows *w, CUdeviceptr ours, CUdeviceptr theirs, size_t bytes, size_t *at)
{
    for (*at = 0; *at < bytes;) {
        size_t n = bytes - *at < WINDOW ? bytes - *at : WINDOW;
        SLR_TRY(SLR_CU(cuMemcpyDtoH, w->ours, ours + *at, n));
        SLR_TRY(SLR_CU(cuMemcpyDtoH, w->theirs, theirs + *at, n));
        size_t same = first_difference(w->ours, w->theirs, n);
        *at += same;
        if (same < n)
            break;
    }
    return SLR_OK;
}

/* Says once for each verified call how it came out; `at` == bytes: no difference. */
static void verdict(const struct slr_call *call, size_t at, size_t bytes)
{
    const struct slr_comm *c = call->comm;
    atomic_fetch_add(&slr_counters.verified, 1);
    if (at >= bytes) {
        slr_log(SLR_LOG_DEBUG, "verified", "op=allgather comm=%s crank=%d call=%llu bytes=%zu", c->name, c->rank,
                (unsigned long long)call->number, bytes);
        return;
    }
    atomic_fetch_add(&slr_counters.verify_bad, 1);
    slr_log(SLR_LOG_ERROR, "verify_differs",
            "op=allgather comm=%s crank=%d call=%llu shard=%zu offset=%zu owner=%d msg=%s", c->name, c->rank,
            (unsigned long long)call->number, call->shard, at, (int)(at / call->shard),
            "the ring and NCCL gathered different bytes");
}

/* Blocks the host until the stream is idle, which a program that verifies has asked for. */
static enum slr_status compare_with(const struct slr_call *call, size_t bytes)
{
    CUdeviceptr recv = (CUdeviceptr)(uintptr_t)call->recv;
    struct windows w = {malloc(WINDOW), malloc(WINDOW)};
    size_t at = bytes;
    enum slr_status s = w.ours && w.theirs ? SLR_CU(cuStreamSynchronize, call->stream) : SLR_NOMEM;
    if (s == SLR_OK)
        s = compare(&w, recv, call->reference, bytes, &at);
    free(w.ours);
    free(w.theirs);
    if (s == SLR_OK)
        verdict(call, at, bytes);
    /* The application goes on with NCCL's bytes: they are what it would have had. */
    if (s == SLR_OK && at < bytes)
        s = SLR_CU(cuMemcpyAsync, recv, call->reference, bytes, call->stream);
    return s == SLR_OK ? SLR_CU(cuStreamSynchronize, call->stream) : s;
}

static size_t gathered(const struct slr_call *call)
{
    return call->shard * (size_t)call->comm->nranks;
}

/* One that spans hosts has no context of its own: the caller is in its device's. */
static bool enter(const struct slr_comm *c)
{
    return !c->shared.ctx || slr_shared_enter(&c->shared) == SLR_OK;
}

static void leave(const struct slr_comm *c)
{
    if (c->shared.ctx)
        slr_shared_leave();
}

ncclResult_t slr_verify_prepare(struct slr_call *call)
{
    const struct slr_comm *c = call->comm;
    call->reference = 0;
    if (!enter(c))
        return ncclSuccess;
    if (slr_real.cuMemAlloc(&call->reference, gathered(call)) != CUDA_SUCCESS) {
        call->reference = 0;
        slr_log(SLR_LOG_WARN, "not_verified", "comm=%s crank=%d call=%llu bytes=%zu msg=%s", c->name, c->rank,
                (unsigned long long)call->number, gathered(call), "no device memory for the comparison");
    }
    leave(c);
    return ncclSuccess;
}

ncclResult_t slr_verify_run(const struct slr_call *call)
{
    struct slr_call copy = *call;
    if (call->reference)
        copy.recv = (void *)(uintptr_t)call->reference;
    return slr_gather_nccl(&copy);
}

ncclResult_t slr_verify_finish(const struct slr_call *call, ncclResult_t r)
{
    if (!call->reference || !enter(call->comm))
        return r;
    bool nvtx = slr_nvtx_begin("verify", "", gathered(call));
    if (r == ncclSuccess && compare_with(call, gathered(call)) != SLR_OK)
        r = ncclUnhandledCudaError;
    slr_nvtx_end(nvtx);
    slr_cu_status(slr_real.cuMemFree(call->reference), "cuMemFree");
    leave(call->comm);
    return r;
}
