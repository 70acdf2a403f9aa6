/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of graphs that hold recorded gathers (record.h). */
#ifndef SLR_PLUGIN_RECORD_REPLAY_H
#define SLR_PLUGIN_RECORD_REPLAY_H

#include <cuda.h>
#include <stdbool.h>

struct slr_replay;

/* Around the driver's launch. `stream`: CU_STREAM_PER_THREAD for the thread's. False: the launch is
 * refused, *r is the answer. *replay: NULL when the graph holds none; else the locks of its
 * communicators are held until the end. `r`: what the launch has answered. */
bool slr_replay_begin(CUgraphExec exec, CUstream stream, struct slr_replay **replay, CUresult *r);
void slr_replay_end(struct slr_replay *replay, CUresult r);

/* A launch of a graph that holds operations of NCCL's (graphs.h) is one itself: it comes behind the communicators'
 * gathers of the ring before it, and those that come later behind all of it (order.h). The gathers in it are passed
 * alone (passed_alone.h). */

/* Before and behind the driver's launch, which captures nothing and has succeeded. `stream`: CU_STREAM_PER_THREAD for
 * the thread's. No communicator's lock is held. */
void slr_graph_enters(CUgraphExec exec, CUstream stream);
void slr_graph_runs(CUgraphExec exec, CUstream stream);

#endif
