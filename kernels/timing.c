/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include "kernels/timing.h"

#define MORE 32 /* spans and pointers to events, at a time */

/* Room for one more element in *list. */
static bool grow_spans(void **list, unsigned count, unsigned *room, size_t element)
{
    if (count < *room)
        return true;
    void *more = realloc(*list, (*room + MORE) * element);
    if (!more)
        return false;
    *list = more;
    *room += MORE;
    return true;
}

void slr_timing_begin(struct slr_timing *timing)
{
    timing->stamps = timing->spans = timing->cut = 0;
    timing->broken = false;
    for (int track = 0; track < SLR_TRACKS; track++)
        timing->at[track] = -1;
}

static bool create_event(struct slr_timing *timing)
{
    /* With time stamps, unlike the events that only order. */
    if (!grow_spans((void **)&timing->event, timing->created, &timing->event_room, sizeof(CUevent)) ||
        slr_real.cuEventCreate(&timing->event[timing->created], CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        timing->broken = true;
        return false;
    }
    timing->created++;
    return true;
}

bool slr_timing_reserve(struct slr_timing *timing, unsigned stamps)
{
    while (timing->created < stamps)
        if (stamps > SLR_TIMING_STAMPS || !create_event(timing))
            return false;
    return true;
}

/* A plain record of a captured event is no node: it only marks a place in the capture. */
static bool stamp_graph(struct slr_timing *timing, CUstream stream)
{
    const unsigned at = timing->stamps;
    if (!grow_spans((void **)&timing->node, at, &timing->node_room, sizeof(CUgraphNode)) ||
        slr_real.cuEventRecordWithFlags(timing->stand_in, stream, CU_EVENT_RECORD_EXTERNAL) != CUDA_SUCCESS)
        return false;
    timing->node[at] = slr_capture_node(stream);
    return timing->node[at] != NULL;
}

static bool stamp_stream(struct slr_timing *timing, CUstream stream)
{
    return slr_timing_reserve(timing, timing->stamps + 1) &&
           slr_real.cuEventRecord(timing->event[timing->stamps], stream) == CUDA_SUCCESS;
}

/* The number of the new stamp; -1: none. */
static int stamp(struct slr_timing *timing, CUstream stream)
{
    /* A replay has one more than what was captured. */
    if (timing->broken || timing->stamps + (timing->stand_in != NULL) >= SLR_TIMING_STAMPS)
        return -1;
    if (!(timing->stand_in ? stamp_graph : stamp_stream)(timing, stream)) {
        timing->broken = true;
        return -1;
    }
    return (int)timing->stamps++;
}

void slr_timing_add(struct slr_timing *timing, const struct slr_timed_span *span)
{
    if (span->begin < 0 || span->end < 0 ||
        !grow_spans((void **)&timing->span, timing->spans, &timing->span_room, sizeof *span))
        timing->cut++;
    else
        timing->span[timing->spans++] = *span;
}

void slr_timing_mark_on(struct slr_timing *timing, enum slr_span_track track, CUstream stream)
{
    timing->at[track] = stamp(timing, stream);
}

void slr_timing_did_on(struct slr_timing *timing, enum slr_span_track track, CUstream stream,
                       struct slr_timed_span what)
{
    what.track = track;
    /* The stamp behind one operation is the one before the next. */
    what.begin = timing->at[track];
    what.end = timing->at[track] = stamp(timing, stream);
    slr_timing_add(timing, &what);
}

/* The last stamp first: most often that is the one to wait for. */
CUresult slr_timing_query(const struct slr_timing *timing)
{
    for (unsigned i = timing->stamps; i > 0; i--) {
        CUresult q = slr_real.cuEventQuery(timing->event[i - 1]);
        if (q != CUDA_SUCCESS)
            return q;
    }
    return CUDA_SUCCESS;
}

void slr_timing_free(struct slr_timing *timing)
{
    for (unsigned i = 0; i < timing->created; i++)
        slr_real.cuEventDestroy(timing->event[i]);
    free(timing->event);
    free(timing->span);
    free(timing->node);
    /* An event that is destroyed in flight is freed when it is complete. */
    *timing = (struct slr_timing){0};
}

const char *slr_span_track_name(enum slr_span_track track)
{
    static const char *const names[] = {
        [SLR_TRACK_APP] = "app", [SLR_TRACK_PUBLISH] = "publish", [SLR_TRACK_PULL] = "pull", [SLR_TRACK_COPY] = "copy"};
    return names[track];
}

const char *slr_span_name(enum slr_span_kind kind)
{
    static const char *const names[] = {
        [SLR_SPAN_OWN] = "own",   [SLR_SPAN_STAGE] = "stage", [SLR_SPAN_PUSH] = "push", [SLR_SPAN_PULL] = "pull",
        [SLR_SPAN_WAIT] = "wait", [SLR_SPAN_GEMM] = "gemm",   [SLR_SPAN_NCCL] = "nccl", [SLR_SPAN_SUM] = "sum",
    };
    return names[kind];
}

/* ---- stamps in CUDA graphs ---- */

bool slr_timing_graphs(void)
{
    return slr_real.cuEventRecordWithFlags && slr_real.cuGraphExecEventRecordNodeSetEvent &&
           slr_real.cuStreamGetCaptureInfo;
}

bool slr_timing_give(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                     struct slr_timing *timing)
{
    bool given = slr_timing_reserve(timing, captured->stamps + 1);
    for (unsigned i = 0; given && i < captured->stamps; i++)
        given = slr_real.cuGraphExecEventRecordNodeSetEvent(exec, node[i], timing->event[i]) == CUDA_SUCCESS;
    timing->stamps = given ? captured->stamps : 0;
    timing->cut = captured->cut;
    timing->broken |= !given;
    return given;
}

bool slr_timing_launched(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                         struct slr_timing *timing, CUstream stream)
{
    bool back = true;
    if (stream)
        slr_timing_mark(timing, SLR_TRACK_APP, stream);
    for (unsigned i = 0; i < captured->stamps; i++)
        back &= slr_real.cuGraphExecEventRecordNodeSetEvent(exec, node[i], captured->stand_in) == CUDA_SUCCESS;
    if (!back) {
        timing->created = timing->stamps = 0; /* later launches record them: nobody may use them again */
        timing->broken = true;
    }
    return back;
}
