/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of streams that hold pending gathers (pending.h). */
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/pending/pending_state.h"

/* A look at one pending gather after another, the latest first, for a query of `stream`. */
struct looks {
    CUstream stream;
    CUcontext ctx;   /* NULL: any; the legacy default stream exists in each */
    uint64_t serial; /* of the one that is looked at */
    bool carried;    /* likewise */
    bool aside;      /* likewise: for the stream */
};

/* A query tells of the stream's own work alone; of the legacy default stream, of all that it waits for. `aside`: and
 * a GEMM aside is a part of that. */
static bool is_shown(const struct looks *l, const struct slr_lane *lane, bool aside)
{
    for (unsigned i = 0; i < lane->pending->holders; i++) {
        const struct slr_holder *h = &lane->pending->holder[i];
        if ((!l->ctx || l->ctx == lane->ring.ctx) && (h->stream == l->stream || (!l->stream && h->blocking)) &&
            (!aside || h->aside))
            return true;
    }
    return false;
}

static bool is_next(struct slr_lane *lane, void *looks)
{
    struct looks *l = looks;
    if (lane->pending->serial >= l->serial || !is_shown(l, lane, false))
        return false;
    l->serial = lane->pending->serial;
    l->carried = lane->pending->carried;
    l->aside = is_shown(l, lane, true);
    return true;
}

/* The driver is about to say that the stream is ready: what the host does from then on comes behind the gather, on
 * whatever stream. But a GEMM that reads `send` may be on its way there, in another thread: then it has come first. */
static bool show(struct slr_lane *lane, void *looks)
{
    if (!is_shown(looks, lane, false))
        return false;
    atomic_store(&lane->pending->shown, true);
    return atomic_load(&lane->pending->read);
}

/* What is joined meanwhile the driver knows of, and the ring's streams may have the next gather. */
static bool is_still(struct slr_lane *lane, void *looks)
{
    const struct looks *l = looks;
    return lane->pending->serial == l->serial && is_shown(l, lane, false);
}

/* An error is the driver's to tell. */
static bool under_way(struct slr_lane *lane, const struct looks *l)
{
    if (slr_shared_enter(&lane->comm->shared) != SLR_OK)
        return false;
    const CUresult r = slr_ring_query(&lane->ring, l->carried, l->aside);
    slr_shared_leave();
    return r == CUDA_ERROR_NOT_READY;
}

static bool shows_gather(CUstream stream)
{
    struct looks l = {.stream = stream, .ctx = stream ? NULL : slr_stream_context(stream), .serial = UINT64_MAX};
    bool busy = false;
    for (struct slr_lane *lane; !busy && (lane = slr_pending_find(is_next, &l)) != NULL;) {
        struct slr_lane *still = under_way(lane, &l) ? slr_pending_find(is_still, &l) : NULL;
        busy = still != NULL;
        slr_lane_put(still);
        slr_lane_put(lane);
    }
    struct slr_lane *read = busy ? NULL : slr_pending_find(show, &l);
    slr_lane_put(read);
    return busy || read;
}

bool slr_pending_query(const struct slr_observed *o, CUresult *answer)
{
    const struct slr_operation op = {.stream = o->stream, .why = o->why, .who = o->who};
    bool busy = false;
    if (!slr_pending_may_observe(op.stream))
        return false;
    if (slr_stream_may_capture(op.stream)) /* what it holds is recorded */
        slr_pending_join_observed(&op);
    else
        busy = shows_gather(op.stream);
    /* The driver all the same: it says what is wrong, and what the query breaks it breaks. */
    if (busy && (*answer = slr_real.cuStreamQuery(op.stream)) == CUDA_SUCCESS)
        *answer = CUDA_ERROR_NOT_READY;
    return busy;
}
