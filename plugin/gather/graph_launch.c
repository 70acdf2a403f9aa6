/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/graph_launch.h"

#include "plugin/comm/comm.h"
#include "plugin/comm/stream.h"
#include "plugin/gather/graphs.h"
#include "plugin/gather/order.h"
#include "plugin/gather/passed_alone.h"

void slr_graph_enters(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(slr_graph_exec(exec), &holds)) != NULL; slr_comm_put(c))
        slr_order_before_nccl(c, slr_stream_name(stream, false));
}

void slr_graph_runs(CUgraphExec exec, CUstream stream)
{
    struct slr_graph_holds holds = {.at = 0};
    for (struct slr_comm *c; (c = slr_graph_next_comm(slr_graph_exec(exec), &holds)) != NULL; slr_comm_put(c)) {
        if (holds.gathers)
            slr_alone_note(c, SLR_R_CAPTURE, holds.gathers);
        if (holds.uncounted)
            slr_alone_uncounted(c);
        slr_order_after_nccl(c, slr_stream_name(stream, false));
    }
}
