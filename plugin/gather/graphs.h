/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers that graphs hold.
 *
 * A gather on a stream that is being captured is no communication yet: NCCL records it, and it runs
 * as often as the graph is launched, or never. For passed_alone.h it is a call that this rank
 * passes each time that an executable graph which holds it is launched. So the library follows it:
 *
 *   call                                      effect
 *   a gather on a capturing stream            the graph that is recorded holds it
 *   cuGraphInstantiate (all forms),           the new one holds what the old one holds, and
 *   cuGraphClone, cuGraphExecUpdate           nothing else
 *   cuGraphAddChildGraphNode,                 the graph holds, in addition, what the child holds
 *   cuGraphAddNode,
 *   cuGraphLaunch on a capturing stream
 *   cuGraphLaunch                             passed_alone.h counts what the executable graph holds
 *   cuGraphDestroy, cuGraphExecDestroy        it holds nothing
 *
 * Handles come again, and not every graph ends by a call (a capture that failed, a child that was
 * moved into its parent). So a handle that cuGraphCreate, cuGraphClone or a beginning capture has
 * made holds nothing.
 *
 * Not followed: bodies of conditional nodes, launches by device code, and nodes that are taken out
 * of a graph or switched off. Ranks that do the same things in the same order, as NCCL wants them
 * to, still count the same. Only a rank that does otherwise than its peers is not found at once: it
 * is a stall then (watchdog.h), or the communicator fails although the node that was taken out does
 * not run.
 *
 * The communicator is remembered by its id: graphs may outlive it. Thread-safe, one lock, under
 * which the registry's is taken and no driver is called. Nothing is looked up as long as no graph
 * holds a gather.
 */
#ifndef SLR_PLUGIN_GATHER_GRAPHS_H
#define SLR_PLUGIN_GATHER_GRAPHS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct slr_comm;

/* Names a graph or an executable one; NULL: none, which holds nothing and takes nothing. */
typedef struct {
    const void *handle;
    bool executable;
} slr_graph;

static inline slr_graph slr_graph_of(CUgraph graph)
{
    return (slr_graph){graph, false};
}

static inline slr_graph slr_graph_exec(CUgraphExec exec)
{
    return (slr_graph){exec, true};
}

/* Whether any graph holds a gather; false in a child after fork. */
bool slr_graphs_any(void);

/* The graph that the stream records into now, or NULL. CU_STREAM_PER_THREAD for the calling
 * thread's default stream. */
CUgraph slr_graph_recorded(CUstream stream);

/* It holds one more gather of `c`. */
void slr_graph_hold(slr_graph graph, const struct slr_comm *c);

/* `to` holds what `from` holds and nothing else; `to` holds, in addition, what `child` holds. */
void slr_graph_copy(slr_graph to, slr_graph from);
void slr_graph_add(slr_graph to, slr_graph child);

/* It holds nothing. */
void slr_graph_forget(slr_graph graph);

/* It has been launched. */
void slr_graph_runs(slr_graph graph);

#endif
