/* SPDX-License-Identifier: Apache-2.0 */
/* Time stamps in CUDA graphs.
 *
 * The record of a captured gather (slr_timing.stand_in) has nodes, which record one event that nobody
 * asks, and spans, but no times. A replay that is measured has a record of its own:
 *
 *   before the launch   slr_timing_give: the executable graph's nodes are given the record's events
 *   behind it           slr_timing_launched: they are given the stand-in again, and the record has
 *                       one more stamp, behind all of the graph
 *
 * A change of a node holds for the launches behind it; those that run, or wait, keep what they had
 * (CUDA). So launches may follow each other at once, each with its own record, and between launches
 * the graph names no event of a record, which may go before the graph does. The stand-in may not.
 *
 * Why one more stamp: from when on an event that a node records is incomplete, the launch or the
 * node's turn, CUDA does not say. slr_timing_query() asks for the last stamp first, and when that is
 * complete all nodes have run.
 *
 * The context is current in all calls. */
#ifndef SLR_KERNELS_TIMING_GRAPH_H
#define SLR_KERNELS_TIMING_GRAPH_H

#include "kernels/timing.h"

/* Whether the driver has what this needs. */
bool slr_timing_graphs(void);

/* For the next launch of `exec`. `node`: of each stamp of `captured`, in the graph that `exec` was
 * made from. False: the launch is not measured, and *timing is broken. */
bool slr_timing_give(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                     struct slr_timing *timing);

/* Takes the events back. `stream`: stands behind the launch; NULL: there was none. False: not all
 * could be; `exec` keeps those of *timing, which has none any more, and no other launch can be
 * measured. */
bool slr_timing_launched(CUgraphExec exec, const CUgraphNode *node, const struct slr_timing *captured,
                         struct slr_timing *timing, CUstream stream);

#endif
