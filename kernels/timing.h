/* SPDX-License-Identifier: Apache-2.0 */
/* When the operations of one gather or reduce-scatter ran on the device: a record of time stamps,
 * which are events on the streams concerned; and these times in the host's.
 *
 * A *track* is one of the streams that work for a gather: the application's, on which the GEMM waits
 * and computes, and the ring's; the log calls it `lane`. slr_timing_mark() notes where the track stands, and
 * slr_timing_did() that the operation which was enqueued since then ends here, where the next one
 * begins: neighbours share a stamp. The application's track may be on several streams one after
 * another; each is marked anew.
 *
 * An event is recorded behind work that is enqueued anyway, so it changes no order and nothing
 * waits for it; that behind a copy stands before the word or the event that tells of the copy. The
 * calls never fail for the caller: a record with which anything went wrong is `broken`, and what
 * does not fit is counted in `cut`. The events stay the record's and are used again; one that is
 * recorded again while an earlier record of it is in flight means only the later one (CUDA).
 *
 * Of one context, which is current in all calls. Not thread-safe; NULL stands for a gather that is
 * not measured. */
#ifndef SLR_KERNELS_TIMING_H
#define SLR_KERNELS_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/status.h"

#define SLR_TIMING_STAMPS 4096 /* most events of one record */

enum slr_span_track {
    SLR_TRACK_APP,
    SLR_TRACK_PUBLISH,
    SLR_TRACK_PULL,
    SLR_TRACK_COPY, /* of all-reduces: the peers' sums */
    SLR_TRACKS
};

enum slr_span_kind {
    SLR_SPAN_OWN,   /* the own shard is copied into the receive buffer */
    SLR_SPAN_STAGE, /* a piece is copied to the staging slot */
    SLR_SPAN_PUSH,  /* a piece is copied into a peer's receive buffer */
    SLR_SPAN_PULL,  /* a piece is copied from a peer's slot, or from where its shard lies */
    SLR_SPAN_WAIT,  /* the track stands still */
    SLR_SPAN_GEMM,  /* one part of a fused GEMM */
    SLR_SPAN_NCCL,  /* an operation that NCCL does */
    SLR_SPAN_SUM    /* the ranks' contributions to a part of the own shard are added */
};

/* Numbers of stamps; -1 where there is none. */
struct slr_timed_span {
    enum slr_span_track track;
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
    int at[SLR_TRACKS];
    bool broken;       /* an event could not be made or recorded */
    CUevent stand_in;  /* of a captured gather: the event that all its stamps record, the owner's; NULL: it is none */
    CUgraphNode *node; /* and the stamps' nodes, [node_room] */
    unsigned node_room;
};

void slr_timing_begin(struct slr_timing *timing); /* empties the record for its next use */

void slr_timing_mark_on(struct slr_timing *timing, enum slr_span_track track, CUstream stream);
void slr_timing_did_on(struct slr_timing *timing, enum slr_span_track track, CUstream stream,
                       struct slr_timed_span what);

static inline void slr_timing_mark(struct slr_timing *timing, enum slr_span_track track, CUstream stream)
{
    if (__builtin_expect(timing != NULL, 0))
        slr_timing_mark_on(timing, track, stream);
}

static inline void slr_timing_did(struct slr_timing *timing, enum slr_span_track track, CUstream stream,
                                  enum slr_span_kind kind, int peer, int piece, size_t bytes)
{
    if (__builtin_expect(timing != NULL, 0))
        slr_timing_did_on(timing, track, stream,
                          (struct slr_timed_span){.kind = kind, .peer = peer, .piece = piece, .bytes = bytes});
}

/* Makes events for so many stamps. False: there are not that many. */
bool slr_timing_reserve(struct slr_timing *timing, unsigned stamps);

/* Another span, between stamps that it has. */
void slr_timing_add(struct slr_timing *timing, const struct slr_timed_span *span);

/* CUDA_SUCCESS when all stamps are complete, CUDA_ERROR_NOT_READY, or what is wrong with one. */
CUresult slr_timing_query(const struct slr_timing *timing);

void slr_timing_free(struct slr_timing *timing); /* frees events and memory; the record may be in flight */

const char *slr_span_track_name(enum slr_span_track track);
const char *slr_span_name(enum slr_span_kind kind);

/* ---- stamps in CUDA graphs ---- */

/* The record of a captured gather (slr_timing.stand_in) has nodes, which record one event that
 * nobody asks, and spans, but no times. A replay that is measured has a record of its own; between
 * launches, which may follow each other at once, the graph names no event of one. The stand-in has
 * to outlive the graph. */

bool slr_timing_graphs(void); /* whether the driver has what this needs */

/* Gives the nodes the record's events, for the next launch of `exec`. `node`: of each stamp of
 * `captured`, in the graph that `exec` was made from. False: the launch is not measured, and
 * *timing is broken. */
bool slr_timing_give(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                     struct slr_timing *timing);

/* Gives them the stand-in again, and the record one more stamp, behind all of the graph on
 * `stream`; NULL: there was no launch. False: not all could be; `exec` keeps the events of *timing,
 * which has none any more, and no other launch can be measured. */
bool slr_timing_launched(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                         struct slr_timing *timing, CUstream stream);

/* The node of a graph that a capturing stream's latest operation has become. NULL: the stream
 * captures nothing, or what it does next stands behind several nodes. The driver has
 * cuStreamGetCaptureInfo. */
static inline CUgraphNode slr_capture_node(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *node = NULL;
    size_t n = 0;
    if (slr_real.cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &node, NULL, &n) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
        return NULL;
    return node[0];
}

/* ---- a device's time in the host's: device_clock.c ---- */

/* When an event was, in nanoseconds of CLOCK_MONOTONIC, which all processes of a host share. A
 * *base* is an event for which the host's time is known within a bound; the *anchor* is the first,
 * from which the rate of the device's clock is measured. Of one context, current in all calls. Not
 * thread-safe. */
struct slr_device_clock {
    CUstream stream;
    CUevent anchor, base, best, attempt;
    bool anchored, known; /* `anchor` and `base` mean something */
    uint64_t anchor_ns, anchor_half_ns;
    uint64_t base_ns, half_ns; /* the base was at base_ns, give or take half_ns */
    uint64_t patience_ns;      /* for one attempt */
    double rate;               /* the host's nanoseconds in one of the device's */
    double drift;              /* and how wrong that can be */
};

/* On failure nothing is left. */
enum slr_status slr_device_clock_open(struct slr_device_clock *clock);
void slr_device_clock_close(struct slr_device_clock *clock);

/* Looks for a better base, if the present one is old; may wait for the device, as long as two
 * attempts: not for the data path. False: there is none yet. */
bool slr_device_clock_look(struct slr_device_clock *clock);

/* For the last times that will be asked for: while there is no base, tries for up to a second. */
bool slr_device_clock_insist(struct slr_device_clock *clock);

/* When a complete event was, and how wrong that can be. Whatever is not CUDA_SUCCESS: not known. */
CUresult slr_device_clock_time(const struct slr_device_clock *clock, CUevent event, uint64_t *ns, uint64_t *error);

#endif
