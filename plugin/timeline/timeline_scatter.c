/* SPDX-License-Identifier: Apache-2.0 */
/* Records of reduce-scatters (timeline.h). */
#include "plugin/timeline/timeline_impl.h"

static void give_back_expected(struct slr_timeline *timeline)
{
    if (timeline->expected)
        slr_timeline_give_back(timeline, timeline->expected);
    timeline->expected = NULL;
}

struct slr_timing *slr_timeline_expect(struct slr_comm *c, CUstream stream)
{
    /* Only a guess: other calls of the communicator may come before. */
    const uint64_t number = c->substituted + 1;
    /* A call makes the timeline: another thread than this one may be in one. */
    struct slr_timeline *timeline = atomic_load(&c->timeline) && slr_timeline_turn(number) ? slr_timeline_of(c) : NULL;
    if (!timeline)
        return NULL;
    give_back_expected(timeline);
    timeline->expected = slr_timeline_record(timeline, SLR_TIMED_SCATTER, number);
    if (!timeline->expected)
        return NULL;
    slr_timing_mark(&timeline->expected->timing, SLR_LANE_APP, stream);
    return &timeline->expected->timing;
}

/* The record that the GEMM has begun, or a new one. */
static struct slr_timed *record_of(struct slr_timeline *timeline, const struct slr_call *call,
                                   const struct slr_timing *gemm)
{
    struct slr_timed *m = timeline->expected;
    if (!m || &m->timing != gemm) {
        give_back_expected(timeline);
        return slr_timeline_take(timeline, SLR_TIMED_SCATTER, call->number);
    }
    timeline->expected = NULL;
    m->number = call->number;
    atomic_fetch_add_explicit(&timeline->sampled, 1, memory_order_relaxed);
    return m;
}

void slr_timeline_scatter(const struct slr_call *call, struct slr_timing *gemm)
{
    struct slr_comm *c = call->comm;
    c->ring.timing = NULL;
    if (!slr_timeline_turn(call->number))
        return;
    struct slr_timeline *timeline = slr_timeline_of(c);
    struct slr_timed *m = timeline ? record_of(timeline, call, gemm) : NULL;
    if (!m)
        return;
    slr_timeline_describe(m, call);
    m->reason = SLR_R_RING;
    c->ring.timing = &m->timing;
}

void slr_timeline_scattered(struct slr_comm *c, uint32_t pieces, unsigned parts, bool fused, enum slr_status s)
{
    /* `timing` is the record's first member. */
    struct slr_timed *m = (struct slr_timed *)c->ring.timing;
    c->ring.timing = NULL;
    if (!m)
        return;
    m->pieces = pieces;
    m->chunks = parts;
    m->ended = fused ? SLR_R_FUSED : SLR_R_RING;
    /* Unread: of what is enqueued in part no time means anything. */
    if (s == SLR_OK)
        slr_timeline_hand_in(atomic_load(&c->timeline), m);
    else
        slr_timeline_give_back(atomic_load(&c->timeline), m);
}
