/* Gathers that graphs hold.
 *
 * A gather on a stream that is being captured is no communication yet: NCCL records it, and it runs as often as the
 * graph is launched, or never. For passed_alone.h it is a call that this rank leaves to NCCL each time that an executable graph
 * which holds it is launched. So the library follows what it records:
 *
 *   a gather on a capturing stream              the graph that is recorded holds it
 *   cuGraphInstantiate (all forms), cuGraphClone, cuGraphExecUpdate
 *                                               the new one holds what the old one holds, and nothing else
 *   cuGraphAddChildGraphNode, cuGraphAddNode, cuGraphLaunch on a capturing stream
 *                                               the graph holds, in addition, what the child holds
 *   cuGraphLaunch                               passed_alone.h counts what the executable graph holds
 *   cuGraphDestroy, cuGraphExecDestroy          it holds nothing
 *
 * Handles come again, and not every graph ends by a call (a capture that failed, a child that was moved into its
 * parent): a handle that cuGraphCreate, cuGraphClone or a beginning capture has made holds nothing.
 *
 * Not followed: bodies of conditional nodes, launches by device code, and nodes that are taken out of a graph or
 * switched off. Ranks that do the same things in the same order, as NCCL wants them to, count the same all the same.
 * What is lost is that a rank which does otherwise than its peers is found at once: it is a stall then (watchdog.h), or
 * the communicator fails although the node that was taken out does not run.
 *
 * The communicator is remembered by its id: graphs may outlive it. Thread-safe, one lock, under which the registry's
 * is taken and no driver is called. Nothing is looked up as long as no graph holds a gather.
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

static inline slr_graph slr_graph_of(CUgraph g)
{
    return (slr_graph){g, false};
}

static inline slr_graph slr_graph_exec(CUgraphExec e)
{
    return (slr_graph){e, true};
}

/* Whether any graph holds a gather; false in a child after fork. */
bool slr_graphs_any(void);

/* The graph that the stream records into now, or NULL. CU_STREAM_PER_THREAD for the calling thread's default stream. */
CUgraph slr_graph_recorded(CUstream stream);

void slr_graph_hold(slr_graph g, const struct slr_comm *c);
void slr_graph_copy(slr_graph to, slr_graph from);
void slr_graph_add(slr_graph to, slr_graph child);
void slr_graph_forget(slr_graph g);

/* It has been launched. */
void slr_graph_runs(slr_graph g);

#endif
