/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of a graph that holds operations of NCCL's (graphs.h) is one itself: it comes behind the communicators'
 * gathers of the ring before it, and those that come later behind all of it (order.h). The gathers in it are passed alone
 * (passed_alone.h). */
#ifndef SLR_PLUGIN_RECORD_GRAPH_LAUNCH_H
#define SLR_PLUGIN_RECORD_GRAPH_LAUNCH_H

#include <cuda.h>

/* Before and behind the driver's launch, which captures nothing and has succeeded. `stream`: CU_STREAM_PER_THREAD for the
 * thread's. No communicator's lock is held. */
void slr_graph_enters(CUgraphExec exec, CUstream stream);
void slr_graph_runs(CUgraphExec exec, CUstream stream);

#endif
