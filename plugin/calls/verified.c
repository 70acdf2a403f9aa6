/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/calls/collective.h"

#include <string.h>
#include "base/real.h"
#include "base/wait.h"

/* The same call of two ranks of one communicator. */
static bool same_call(const struct slr_call *a, const struct slr_call *b)
{
    return a->number == b->number && !memcmp(&a->comm->key, &b->comm->key, sizeof a->comm->key);
}

static ncclResult_t settled(ncclComm_t comm)
{
    ncclResult_t now = ncclInProgress;
    while (now == ncclInProgress) {
        const ncclResult_t asked = slr_real.ncclCommGetAsyncError(comm, &now);
        now = asked == ncclSuccess ? now : asked;
        if (now == ncclInProgress)
            slr_sleep_ms(1);
    }
    return now;
}

/* On communicators that are not blocking: who compares waits anyway. */
static ncclResult_t all_settled(const struct slr_call *calls, size_t n, const struct slr_call *call)
{
    ncclResult_t r = ncclSuccess;
    for (size_t i = 0; i < n; i++) {
        const ncclResult_t one = same_call(&calls[i], call) ? settled(calls[i].nccl) : ncclSuccess;
        r = r == ncclSuccess ? one : r;
    }
    return r;
}

static ncclResult_t step(const struct slr_call *calls, size_t n, const struct slr_call *call,
                         ncclResult_t (*run)(const struct slr_call *call))
{
    /* The group is closed also after an error: NCCL counts its depth for the thread. */
    ncclResult_t r = slr_real.ncclGroupStart();
    for (size_t i = 0; i < n && r == ncclSuccess; i++)
        if (same_call(&calls[i], call))
            r = run(&calls[i]);
    ncclResult_t end = slr_real.ncclGroupEnd();
    end = end == ncclInProgress ? all_settled(calls, n, call) : end;
    return r == ncclSuccess ? end : r;
}

static bool came_before(const struct slr_call *calls, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (same_call(&calls[j], &calls[i]))
            return true;
    return false;
}

/* NCCL's part of the call, of all its ranks that this thread has. */
static ncclResult_t by_nccl(const struct slr_call *calls, size_t n, const struct slr_call *call)
{
    if (!call->verify)
        return ncclSuccess;
    const struct slr_compare *compare = &call->flow->compare;
    const ncclResult_t r = step(calls, n, call, compare->nccl);
    return r == ncclSuccess && compare->inputs ? step(calls, n, call, compare->inputs) : r;
}

/* False: none is verified. */
static bool prepare(struct slr_call *calls, size_t n, ncclResult_t *r)
{
    bool any = false;
    *r = ncclSuccess;
    for (size_t i = 0; i < n && *r == ncclSuccess; i++) {
        any |= calls[i].verify;
        if (calls[i].verify)
            *r = calls[i].flow->compare.prepare(&calls[i]);
    }
    return any;
}

ncclResult_t slr_verified_begin(struct slr_call *call)
{
    ncclResult_t r;
    prepare(call, 1, &r);
    return r == ncclSuccess ? by_nccl(call, 1, call) : r;
}

ncclResult_t slr_verified_run(struct slr_call *calls, size_t n, ncclResult_t (*ring)(const struct slr_call *call))
{
    ncclResult_t r;
    const bool any = prepare(calls, n, &r);
    for (size_t i = 0; i < n && r == ncclSuccess; i++) {
        if (!any) {
            r = ring(&calls[i]);
            continue;
        }
        if (came_before(calls, i))
            continue;
        r = by_nccl(calls, n, &calls[i]);
        for (size_t j = i; j < n && r == ncclSuccess; j++)
            if (same_call(&calls[j], &calls[i]))
                r = ring(&calls[j]);
    }
    return r;
}

ncclResult_t slr_verified_finish(const struct slr_call *calls, size_t n, ncclResult_t r)
{
    for (size_t i = 0; i < n; i++)
        if (calls[i].verify)
            r = calls[i].flow->compare.finish(&calls[i], r);
    return r;
}
