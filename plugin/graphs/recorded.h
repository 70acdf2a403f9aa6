/* SPDX-License-Identifier: Apache-2.0 */
/* Which graph holds which recorded gathers (record.h).
 *
 *   call                                effect
 *   a gather is recorded                the graph that is recorded holds it
 *   cuGraphInstantiate (all forms)      the executable graph holds what the graph holds, by the
 *                                       graph's nodes, which CUDA wants to exist when they are named:
 *                                       so the graph's end is put off until that of the last
 *                                       executable one
 *   cuGraphClone                        the clone holds the same, by its own nodes
 *   cuGraphAddChildGraphNode,           the graph holds, in addition, what the child holds, by the
 *   cuGraphAddNode                      nodes of the copy that the driver has made
 *   cuGraphExecUpdate                   the executable graph holds what the new graph holds, by the
 *                                       nodes that it had before
 *   cuGraphExecChildGraphNodeSetParams  with a graph that holds some the executable graph is lost: which
 *                                       of its gathers those are can not be told
 *   cuGraphDestroyNode                  of a child: the graph does not hold any more what came with it. Of
 *                                       a node of a gather itself: the graph is lost. So are executable
 *                                       graphs made before: their nodes can not be named any more
 *   cuGraphDestroy, cuGraphExecDestroy  it holds nothing
 *
 * While any holds it, a gather's communicator stays connected and its buffers registered. A graph
 * whose nodes can not be followed is *lost*: its executable graphs are refused.
 *
 * Thread-safe, one lock; under it the driver is only asked for nodes. */
#ifndef SLR_PLUGIN_GRAPHS_RECORDED_H
#define SLR_PLUGIN_GRAPHS_RECORDED_H

#include "kernels/ring_record.h"
#include "plugin/comm/key.h"
#include "plugin/graphs/graphs.h"
#include "plugin/timeline/timeline.h"

struct slr_recorded_gather {
    struct slr_label comm;
    int rank;
    const void *send;
    void *recv;
    size_t shard;
    uint64_t block[2]; /* that are held and registered: of `send` and `recv`; 0: none */
    CUgraphNode under; /* the graph's node that it came with, as a part of a child; NULL: the graph's own */
    const struct slr_flow *flow;
    bool grouped; /* captured in a group, at whose end it is recorded */
    bool fused;   /* its GEMM is in parts */
    struct slr_plan plan;
    struct slr_recorded nodes;
    struct slr_timed_nodes stamps;
};

/* What one graph holds, in the order of capture. */
struct slr_recorded_graph {
    slr_graph graph;
    struct slr_recorded_graph *of; /* of an executable one: the graph that it was made from */
    unsigned made, users;          /* executable ones made from it; who looks at it */
    bool gone, lost;               /* the program has destroyed it; nodes could not be followed */
    struct slr_recorded_gather *gather;
    unsigned gathers, room;
    struct slr_recorded_graph *next;
};

/* Whether any graph holds a recorded gather. */
bool slr_recorded_any(void);

/* Takes over gather->nodes and ->stamps, and one registration and use of the communicator. False: no memory. */
bool slr_recorded_add(CUgraph graph, struct slr_recorded_gather *gather);

/* Frees gather->nodes and ->stamps. */
void slr_recorded_drop(struct slr_recorded_gather *gather);

/* How many gathers of the communicator it holds. */
unsigned slr_recorded_count(CUgraph graph, const struct slr_comm *c);

/* A GEMM has taken the communicator's latest gather in the graph over, in parts. */
void slr_recorded_in_parts(CUgraph graph, const struct slr_comm *c);

/* After the driver's call. */
void slr_recorded_instantiated(CUgraphExec exec, CUgraph graph);
void slr_recorded_cloned(CUgraph clone, CUgraph graph);
void slr_recorded_child(CUgraph graph, CUgraph child, CUgraphNode node);
void slr_recorded_updated(CUgraphExec exec, CUgraph graph);
void slr_recorded_child_set(CUgraphExec exec, CUgraph child);
void slr_recorded_not_instantiated(CUgraph graph, CUresult r);

/* Before the driver's: the handles of a node, and of what is in it, may be used again. */
void slr_recorded_node_destroyed(CUgraphNode node);

/* Before the driver's. False: the graph's end is put off. */
bool slr_recorded_destroys(CUgraph graph);

/* After the driver's: a graph whose end was put off until then, or NULL. */
CUgraph slr_recorded_exec_destroyed(CUgraphExec exec);

/* A handle that comes again. */
void slr_recorded_forget(slr_graph graph);

/* To be put. NULL: it holds none. */
struct slr_recorded_graph *slr_recorded_find(CUgraphExec exec);
void slr_recorded_put(struct slr_recorded_graph *graph);

#endif
