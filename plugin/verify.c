#include "plugin/verify.h"

#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/cu.h"
#include "base/log.h"

#define WINDOW ((size_t)8 << 20) /* host memory used at a time */

bool slr_verify_due(const struct slr_comm *c)
{
    uint64_t every = slr_get(SLR_S_VERIFY);
    return every && c->substituted % every == 0;
}

/* First differing byte of [0, n), or n. */
static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t n)
{
    if (!memcmp(a, b, n))
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

static void verdict(const struct slr_call *call, size_t at, size_t bytes)
{
    const struct slr_comm *c = call->comm;
    atomic_fetch_add(&slr_counters.verified, 1);
    if (at >= bytes) {
        slr_log(SLR_LOG_DEBUG, "verified", "comm=%s crank=%d call=%llu bytes=%zu", c->name, c->rank,
                (unsigned long long)c->substituted, bytes);
        return;
    }
    atomic_fetch_add(&slr_counters.verify_bad, 1);
    slr_log(SLR_LOG_ERROR, "verify_differs", "comm=%s crank=%d call=%llu shard=%zu offset=%zu owner=%d msg=%s", c->name,
            c->rank, (unsigned long long)c->substituted, call->shard, at, (int)(at / call->shard),
            "the ring and NCCL gathered different bytes");
}

static enum slr_status compare_with(const struct slr_call *call, CUdeviceptr scratch, size_t bytes)
{
    CUdeviceptr recv = (CUdeviceptr)(uintptr_t)call->recv;
    struct windows w = {malloc(WINDOW), malloc(WINDOW)};
    size_t at = bytes;
    enum slr_status s = w.ours && w.theirs ? SLR_CU(cuStreamSynchronize, call->stream) : SLR_NOMEM;
    if (s == SLR_OK)
        s = compare(&w, recv, scratch, bytes, &at);
    free(w.ours);
    free(w.theirs);
    if (s == SLR_OK)
        verdict(call, at, bytes);
    if (s == SLR_OK && at < bytes)
        s = SLR_CU(cuMemcpyAsync, recv, scratch, bytes, call->stream);
    return s == SLR_OK ? SLR_CU(cuStreamSynchronize, call->stream) : s;
}

ncclResult_t slr_verify_gather(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    size_t bytes = call->shard * (size_t)c->nranks;
    struct slr_call copy = *call;
    CUdeviceptr scratch = 0;
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return slr_gather_nccl(call);
    if (slr_real.cuMemAlloc(&scratch, bytes) == CUDA_SUCCESS)
        copy.recv = (void *)(uintptr_t)scratch;
    else
        slr_log(SLR_LOG_WARN, "not_verified", "comm=%s crank=%d call=%llu bytes=%zu msg=%s", c->name, c->rank,
                (unsigned long long)c->substituted, bytes, "no device memory for the comparison");
    ncclResult_t r = slr_gather_nccl(&copy);
    if (scratch) {
        if (r == ncclSuccess && compare_with(call, scratch, bytes) != SLR_OK)
            r = ncclUnhandledCudaError;
        slr_cu_status(slr_real.cuMemFree(scratch), "cuMemFree");
    }
    slr_shared_leave();
    return r;
}
