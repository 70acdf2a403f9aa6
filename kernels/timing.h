/* SPDX-License-Identifier: Apache-2.0 */
/* When the operations of one gather or reduce-scatter ran on the device: a record of time stamps, which
 * are events on the streams concerned.
 *
 * A *lane* is one of the streams that work for a gather: the application's, on which the GEMM waits
 * and computes, and the ring's two (kernels/ring.h). A record follows each lane: slr_timing_mark()
 * notes where the lane stands, and slr_timing_did() notes that the operation which was enqueued
 * since then ends here, where the next one begins. So an operation is bounded by two stamps on its
 * own stream, and neighbours share one. The application's lane may be on several streams one after
 * another; each is marked anew.
 *
 * An event is recorded behind work that is enqueued anyway, so it changes no order, and nothing
 * waits for it. The calls never fail for the caller: a record with which anything went wrong is
 * `broken`, and what does not fit is counted in `cut`. The events stay the record's and are used
 * again by its next use; an event that is recorded again while an earlier record of it is in flight
 * means only the later one, as CUDA says.
 *
 * A captured gather has a record as well, whose stamps are nodes of the graph: see timing_graph.h.
 *
 * Of one context, which is current in all calls. Not thread-safe; NULL stands for a gather that is
 * not measured.
 */
#ifndef SLR_KERNELS_TIMING_H
#define SLR_KERNELS_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/real.h"

#define SLR_TIMING_STAMPS 4096 /* most events of one record */

enum slr_lane { SLR_LANE_APP, SLR_LANE_PUBLISH, SLR_LANE_PULL, SLR_LANES };

enum slr_span_kind {
    SLR_SPAN_OWN,   /* the own shard is copied into the receive buffer */
    SLR_SPAN_STAGE, /* a piece is copied to the staging slot */
    SLR_SPAN_PUSH,  /* a piece is copied into a peer's receive buffer */
    SLR_SPAN_PULL,  /* a piece is copied from a peer's slot, or from where its shard lies */
    SLR_SPAN_WAIT,  /* the lane stands still */
    SLR_SPAN_GEMM,  /* one part of a fused GEMM */
    SLR_SPAN_NCCL,  /* an operation that NCCL does */
    SLR_SPAN_SUM    /* the ranks' contributions to a part of the own shard are added */
};

/* Numbers of stamps; -1 where there is none. */
struct slr_timed_span {
    enum slr_lane lane;
    enum slr_span_kind kind;
    int begin, end;
    int peer, piece; /* -1: no particular one */
    size_t bytes;
    bool staged; /* of a captured gather: a piece is copied from a slot, in replays that use it */
};

struct slr_timing {
    CUevent *event; /* [created]; the first `stamps` are recorded */
    unsigned stamps, created, event_room;
    struct slr_timed_span *span;
    unsigned spans, span_room;
    unsigned cut; /* operations without a span, for want of room */
    int at[SLR_LANES];
    bool broken; /* an event could not be made or recorded */
    /* Of a captured gather: the event that all its stamps record, the owner's; NULL: it is none. And
     * the stamps' nodes, [node_room]. */
    CUevent stand_in;
    CUgraphNode *node;
    unsigned node_room;
};

/* Empties the record for its next use. */
void slr_timing_begin(struct slr_timing *timing);

void slr_timing_mark_on(struct slr_timing *timing, enum slr_lane lane, CUstream stream);
void slr_timing_did_on(struct slr_timing *timing, enum slr_lane lane, CUstream stream, struct slr_timed_span what);

static inline void slr_timing_mark(struct slr_timing *timing, enum slr_lane lane, CUstream stream)
{
    if (__builtin_expect(timing != NULL, 0))
        slr_timing_mark_on(timing, lane, stream);
}

static inline void slr_timing_did(struct slr_timing *timing, enum slr_lane lane, CUstream stream,
                                  enum slr_span_kind kind, int peer, int piece, size_t bytes)
{
    if (__builtin_expect(timing != NULL, 0))
        slr_timing_did_on(timing, lane, stream,
                          (struct slr_timed_span){.kind = kind, .peer = peer, .piece = piece, .bytes = bytes});
}

/* Makes events for so many stamps. False: there are not that many. */
bool slr_timing_reserve(struct slr_timing *timing, unsigned stamps);

/* Another span, between stamps that it has. */
void slr_timing_add(struct slr_timing *timing, const struct slr_timed_span *span);

/* CUDA_SUCCESS when all stamps are complete, CUDA_ERROR_NOT_READY, or what is wrong with one. */
CUresult slr_timing_query(const struct slr_timing *timing);

/* Frees events and memory; the record may be in flight. */
void slr_timing_free(struct slr_timing *timing);

const char *slr_lane_name(enum slr_lane lane);
const char *slr_span_name(enum slr_span_kind kind);

#endif
