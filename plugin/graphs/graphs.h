/* SPDX-License-Identifier: Apache-2.0 */
/* The book of graphs: which graph holds which operations of NCCL's, and which calls of the ring's (recorded.h).
 *
 * An operation on a stream that is being captured is no communication yet: NCCL records it, and it runs
 * as often as the graph is launched, or never. A launch of a graph that holds some of a communicator is
 * an operation of NCCL's for order.h: NCCL runs those of graphs and others in the order of the calls,
 * whatever streams they are on. And for passed_alone.h each gather in it that the ring could have is a
 * call that this rank passes. So the library follows what graphs hold:
 *
 *   call                                      effect
 *   an operation on a capturing stream        the graph that is recorded holds it
 *   cuGraphInstantiate (all forms),           the new one holds what the old one holds, and
 *   cuGraphClone, cuGraphExecUpdate           nothing else
 *   cuGraphAddChildGraphNode,                 the graph holds, in addition, what the child holds, and
 *   cuGraphAddNode,                           what the graph that is embedded in the node gets later
 *   cuGraphLaunch on a capturing stream
 *   cuGraphAddNode of a conditional node      the graph holds what the bodies get, but how often that
 *                                             runs is not known (passed_alone.h: uncounted)
 *   cuGraphExecChildGraphNodeSetParams        the executable graph may run what the child holds as well
 *   cuGraphLaunch                             its place in order.h; passed_alone.h counts
 *   cuGraphDestroy, cuGraphExecDestroy        it holds nothing, nor do graphs in its nodes
 *
 * Handles come again, and not every graph ends by a call (a capture that failed). So a handle that
 * cuGraphCreate, cuGraphClone or a beginning capture has made holds nothing.
 *
 * Not followed: launches by device code, and nodes of NCCL's that are taken out of a graph or switched off. Ranks
 * that do the same things in the same order still count the same. Only a rank that does otherwise than
 * its peers is not found at once: it is a stall then (lifecycle/watchdog.c), or the communicator fails although
 * the node that was taken out does not run.
 *
 * The communicator is remembered by its id: graphs may outlive it. Thread-safe, one lock, under
 * which the registry's is taken, and the driver is only asked for nodes. Nothing is looked up as long as no graph
 * holds an operation. */
#ifndef SLR_PLUGIN_GRAPHS_GRAPHS_H
#define SLR_PLUGIN_GRAPHS_GRAPHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct slr_comm;

/* Whether any graph holds an operation, or has graphs in nodes; false in a child after fork. */
bool slr_graphs_any(void);

/* The graph that the stream records into now, or NULL. CU_STREAM_PER_THREAD for the calling
 * thread's default stream. */
CUgraph slr_graph_captured_into(CUstream stream);

/* The capture that the stream is in, and its graph unless NULL; 0: in none, or in one that is broken. */
unsigned long long slr_graph_capture(CUstream stream, CUgraph *graph);

/* ---- what the hooks tell, behind the driver's call ---- */

void slr_graph_made(CUgraph graph); /* a handle that may have come again */
void slr_graph_cloned(CUgraph clone, CUgraph graph);
void slr_graph_instantiated(CUgraphExec exec, CUgraph graph, CUresult r);
void slr_graph_updated(CUgraphExec exec, CUgraph graph);
void slr_graph_child_added(CUgraph graph, CUgraph child, CUgraphNode node);
void slr_graph_body_added(CUgraph graph, CUgraph body); /* of a conditional node */
void slr_graph_child_set(CUgraphExec exec, CUgraph child);
void slr_graph_launch_captured(CUgraph into, CUgraphExec exec);

/* Before it: another thread may be given the handles as soon as that has ended. slr_graph_ends: false: the graph's
 * end is put off. slr_graph_exec_ends: a graph whose end was put off until behind this one's, or NULL. */
void slr_graph_node_ends(CUgraphNode node);
bool slr_graph_ends(CUgraph graph);
CUgraph slr_graph_exec_ends(CUgraphExec exec);

/* ---- NCCL's operations ---- */

/* It holds an operation of `c`, of which so many (0 or 1) are gathers that count. NULL: nothing. */
void slr_graph_hold(CUgraph graph, const struct slr_comm *c, uint32_t gathers);

/* The communicators of which it holds operations, one after the other, from {.at = 0} on: with a use, and what it holds
 * of them. NULL: there is none more. Those that have ended are left out. */
struct slr_graph_holds {
    unsigned at;
    uint32_t gathers; /* that each launch runs */
    bool uncounted;   /* and others, maybe */
};
struct slr_comm *slr_graph_next_comm(CUgraphExec exec, struct slr_graph_holds *is);

/* Virtual memory that stands in for a peer's while a gather is captured, as the kind of memory that a copy
 * in a graph names can not change (kernels/ring_record.h). It stays until the communicator's end, with
 * the graphs that name it: here it does, with the context current; else only the host's memory is freed. */
void slr_stand_ins_close(struct slr_comm *c, bool with_context);

#endif
