/* SPDX-License-Identifier: Apache-2.0 */
/* Whether gathers could be captured: words and a copy are, and the graph is changed and launched as the
 * library tries it (kernels/graph_try.h). */
#include <stdio.h>
#include <string.h>
#include "kernels/graph_try.h"
#include "tools/doctor/trial.h"

/* The node that the stream's latest operation has become. */
static bool latest(struct trial_self *s, CUstream stream, CUgraphNode *node)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *nodes = NULL;
    size_t n = 0;
    if (!TRIAL_TRY(s, TRIAL_GRAPHS, slr_real, cuStreamGetCaptureInfo, stream, &status, NULL, NULL, &nodes, NULL, &n))
        return false;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
        return trial_bad(s, TRIAL_GRAPHS, "cuStreamGetCaptureInfo", "not the node that was captured");
    *node = nodes[0];
    return true;
}

static bool put(struct trial_self *s, struct slr_graph_try *t)
{
    CUstreamBatchMemOpParams op[2];
    slr_graph_try_ops(t, op);
    return TRIAL_TRY(s, TRIAL_GRAPHS, slr_real, cuStreamBatchMemOp, t->stream, 2, op, 0) &&
           latest(s, t->stream, &t->words) &&
           TRIAL_TRY(s, TRIAL_GRAPHS, slr_real, cuMemcpyAsync, slr_graph_try_to(t), slr_graph_try_from(t), 8,
                     t->stream) &&
           latest(s, t->stream, &t->copy);
}

/* What has begun is ended in any case: the parts behind this one allocate. */
static bool capture(struct trial_self *s, struct slr_graph_try *t)
{
    if (!TRIAL_TRY(s, TRIAL_GRAPHS, s->drv, cuStreamBeginCapture, t->stream, CU_STREAM_CAPTURE_MODE_RELAXED))
        return false;
    const bool good = put(s, t);
    return TRIAL_TRY(s, TRIAL_GRAPHS, s->drv, cuStreamEndCapture, t->stream, &t->graph) && good;
}

bool trial_graphs(struct trial_self *s, void *words, CUdeviceptr device_words)
{
    struct slr_graph_try t = {.ctx = s->ctx, .word = words, .dword = device_words};
    const char *missing = slr_graph_try_missing();
    if (missing)
        return trial_bad(s, TRIAL_GRAPHS, missing, "not in this driver");
    if (!TRIAL_TRY(s, TRIAL_GRAPHS, slr_real, cuMemAlloc, &t.memory, SLR_GRAPH_TRY_BYTES) ||
        !TRIAL_TRY(s, TRIAL_GRAPHS, slr_real, cuStreamCreateWithPriority, &t.stream, CU_STREAM_NON_BLOCKING, 0) ||
        !capture(s, &t))
        return false;
    trial_step(s, "a graph with words and a copy");
    const bool good = slr_graph_try_use(&t);
    trial_step(s, "");
    slr_graph_try_end(&t);
    return good || trial_bad(s, TRIAL_GRAPHS, t.step, t.why);
}
