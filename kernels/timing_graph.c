/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/timing_graph.h"

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
        slr_timing_mark(timing, SLR_LANE_APP, stream);
    for (unsigned i = 0; i < captured->stamps; i++)
        back &= slr_real.cuGraphExecEventRecordNodeSetEvent(exec, node[i], captured->stand_in) == CUDA_SUCCESS;
    if (!back) {
        timing->created = timing->stamps = 0; /* later launches record them: nobody may use them again */
        timing->broken = true;
    }
    return back;
}
