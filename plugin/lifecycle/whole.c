/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator with its parts, and the lane in which its calls run. */
#include <stdlib.h>
#include "base/status.h"
#include "cache/blocks.h"
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/lane.h"
#include "plugin/connect/connect.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/memory/exports.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"
#include "plugin/timeline/timeline.h"
#include "plugin/transfer/transfer.h"
#include "plugin/trials/trials.h"

static void failed(struct slr_lane *lane, enum slr_status status, const char *what)
{
    slr_comm_fail(lane->comm, status, -1, what);
}

static bool takes(const struct slr_lane *lane, CUstream stream)
{
    (void)lane;
    return !slr_stream_captures(stream);
}

static uint32_t parts(const struct slr_lane *lane, const struct slr_member *m, const struct slr_gemm *gemm, bool on_a)
{
    return slr_trials_parts(lane->comm, &m->turn, gemm, on_a);
}

/* So the next gather with these buffers knows what to expect. */
static void fusing(struct slr_lane *lane, const struct slr_member *m, enum slr_fusing what, CUstream stream)
{
    (void)stream;
    switch (what) {
    case SLR_FUSING_DONE:
        slr_expect_consumed(m->expected, lane->ring.now.early);
        return;
    case SLR_FUSING_OVERWRITES:
        slr_expect_overwritten(m->expected);
        return;
    case SLR_FUSING_REFUSED:
        slr_expect_refused(m->expected);
        return;
    }
}

static const struct slr_lane_kind running = {
    .runs = true, .failed = failed, .takes = takes, .parts = parts, .fusing = fusing};

/* One piece of memory, which slr_comm_dispose frees. */
struct whole {
    struct slr_comm comm; /* first */
    struct slr_exports exports;
    struct slr_link link;
    struct slr_lane lane;
    struct slr_order order;
    struct slr_pending pending;
    struct slr_timeline_counts timeline_counts;
};

struct slr_comm *slr_comm_new(void)
{
    struct whole *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->comm.exports = &w->exports;
    w->comm.link = &w->link;
    w->comm.lane = &w->lane;
    w->comm.timeline_counts = &w->timeline_counts;
    w->lane.kind = &running;
    w->lane.comm = &w->comm;
    w->lane.order = &w->order;
    w->lane.pending = &w->pending;
    pthread_mutex_init(&w->lane.lock, NULL);
    pthread_mutex_init(&w->exports.lock, NULL);
    pthread_mutex_init(&w->exports.mapping, NULL);
    pthread_mutex_init(&w->link.lock, NULL);
    return &w->comm;
}

enum slr_reason slr_comm_know_device(struct slr_comm *c, int device, void *flags)
{
    struct slr_shared *s = &c->shared;
    if (SLR_CU(cuDeviceGet, &s->device, device) != SLR_OK ||
        SLR_CU(cuDevicePrimaryCtxRetain, &s->ctx, s->device) != SLR_OK)
        return SLR_R_DRIVER_CALL;
    s->resets = slr_device_resets(s->device);
    struct slr_ring *ring = &c->lane->ring;
    ring->ctx = s->ctx;
    ring->rank = c->rank;
    ring->nranks = c->nranks;
    ring->flags = flags;
    return SLR_R_RING;
}
