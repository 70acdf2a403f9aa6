/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/record/graph_launch.h"

#include "plugin/comm/comm.h"
#include "plugin/comm/stream.h"
#include "plugin/graphs/graphs.h"
#include "plugin/pending/order.h"
#include "plugin/passed/passed_alone.h"

/* Orders a launch on a stream of another device, as a graph for several has. False: the stream is of this one. */
static bool order_away(struct slr_comm *c, CUstream stream, bool before)
{
    enum slr_status s = SLR_OK;
    slr_guard++;
    const CUcontext ctx = slr_stream_context(stream);
    const bool away = ctx && c->shared.ctx && ctx != c->shared.ctx;
    if (away && c->pass == SLR_R_RING && atomic_load(&c->error) == ncclSuccess) {
        slr_comm_lock(c);
        s = slr_shared_work_begin(&c->shared);
        if (s == SLR_OK) {
            s = (before ? slr_order_before_away : slr_order_after_away)(c, stream, ctx, false);
            slr_shared_work_end();
        }
        slr_comm_unlock(c);
    }
    slr_guard--;
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the streams of a communicator could not be ordered");
    return away;
}

void slr_graph_enters(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(exec, &holds)) != NULL; slr_comm_put(c))
        if (!order_away(c, slr_stream_name(stream, false), true))
            slr_order_before_nccl(c, slr_stream_name(stream, false));
}

void slr_graph_runs(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(exec, &holds)) != NULL; slr_comm_put(c)) {
        if (holds.gathers)
            slr_alone_note(c, SLR_R_CAPTURE, holds.gathers);
        if (holds.uncounted)
            slr_alone_uncounted(c);
        if (!order_away(c, slr_stream_name(stream, false), false))
            slr_order_after_nccl(c, slr_stream_name(stream, false));
    }
}
