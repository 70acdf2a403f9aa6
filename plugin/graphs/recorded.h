/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the ring has in graphs: entries of the book (graphs.h), in which graphs hold them by their nodes.
 *
 *   call                                effect
 *   a call is recorded                  the graph that is captured holds it
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
 *                                       of its calls those are can not be told
 *   cuGraphDestroyNode                  of a child: the graph does not hold any more what came with it. Of
 *                                       a node of a call itself: the graph is lost. So are executable
 *                                       graphs made before: their nodes can not be named any more
 *   cuGraphDestroy, cuGraphExecDestroy  it holds nothing
 *
 * While any holds it, a call's communicator stays connected and its buffers registered. A graph
 * whose nodes can not be followed is *lost*: its executable graphs are refused. */
#ifndef SLR_PLUGIN_GRAPHS_RECORDED_H
#define SLR_PLUGIN_GRAPHS_RECORDED_H

#include "kernels/ring_record.h"
#include "plugin/comm/key.h"
#include "plugin/timeline/timeline.h"

struct slr_comm;

struct slr_recorded_gather {
    struct slr_label comm;
    int rank;
    const void *send;
    void *recv;
    size_t shard, bytes; /* of all that is moved */
    uint64_t block[2];   /* that are held and registered: of `send` and `recv`; 0: none */
    CUgraphNode under;   /* the graph's node that it came with, as a part of a child; NULL: the graph's own */
    const struct slr_flow *flow;
    bool grouped; /* captured in a group, at whose end it is recorded */
    bool fused;   /* its GEMM is in parts */
    struct slr_plan plan;
    struct slr_recorded nodes;
    struct slr_timed_nodes stamps;
};

struct slr_graph_held; /* operations of NCCL's, of one communicator */

/* What one graph holds. */
struct slr_graph_page {
    const void *handle;
    bool executable;
    struct slr_graph_held *held;
    CUgraph in; /* in a node of that one, which holds what this one gets; NULL: in none */
    bool body;  /* of a conditional node */
    /* The ring's calls, in the order of capture. */
    struct slr_recorded_gather *gather;
    unsigned gathers, room;
    struct slr_graph_page *of; /* of an executable one: the graph that it was made from */
    unsigned made, users;      /* executable ones made from it; who looks at it */
    bool gone, lost;           /* the program has destroyed it; nodes could not be followed */
    struct slr_graph_page *next;
};

/* Takes over gather->nodes and ->stamps, and one registration and use of the communicator. False: no memory. */
bool slr_recorded_add(CUgraph graph, struct slr_recorded_gather *gather);

/* Frees gather->nodes and ->stamps. */
void slr_recorded_drop(struct slr_recorded_gather *gather);

/* How many calls of the communicator it holds. */
unsigned slr_recorded_count(CUgraph graph, const struct slr_comm *c);

/* A GEMM has taken the communicator's latest gather in the graph over, in parts. */
void slr_recorded_in_parts(CUgraph graph, const struct slr_comm *c);

/* What an executable graph has; to be put. NULL: none of the ring's calls. */
struct slr_graph_page *slr_recorded_find(CUgraphExec exec);
void slr_recorded_put(struct slr_graph_page *page);

/* The memory of a gather that is recorded (record.h): its buffers, offered to the peers as long as a graph
 * holds them, and what stands in for the peers' memory in the capture. For record.c. */

/* Holds and registers the buffers of *g, where that can be; what can not is staged. Waits for nobody. Without the
 * communicator's lock. Ended by recorded.c, once the graph holds it, or by `release`. */
enum slr_status slr_record_memory_find(struct slr_comm *c, struct slr_recorded_gather *g,
                                       struct slr_stand_ins *stand_ins);
void slr_record_memory_release(struct slr_comm *c, struct slr_recorded_gather *g);

/* ---- the book's pages (graphs.h), for this folder alone; all under its lock ---- */

void slr_graphs_lock(void);
void slr_graphs_unlock(void);

/* NULL: it has no page; there is no memory for one. */
struct slr_graph_page *slr_graph_page_of(CUgraph graph);
struct slr_graph_page *slr_graph_exec_page(CUgraphExec exec);
struct slr_graph_page *slr_graph_new_page(CUgraph graph);
struct slr_graph_page *slr_graph_new_exec_page(CUgraphExec exec);
size_t slr_graph_pages(void); /* how many there are; without the lock */

/* The first page, in no order, for which `match` says yes, which may change it, but none that is new or goes. */
struct slr_graph_page *slr_graph_search(bool (*match)(struct slr_graph_page *page, const void *what), const void *what);

/* Its nodes could not be followed. */
void slr_graph_lose(struct slr_graph_page *page);

/* It is in the table no more. */
void slr_graph_unlink(struct slr_graph_page *page);

/* It holds none of the ring's calls any more. */
void slr_recorded_empty(struct slr_graph_page *page);

/* `to` holds, in addition, what `from` holds. `graph`: whose nodes are meant then; NULL: the same ones. `child`: the
 * node in which they are; NULL: it is no child. */
void slr_recorded_take(struct slr_graph_page *to, const struct slr_graph_page *from, CUgraph graph, CUgraphNode child);

/* The executable graph has the values of another one, by its own nodes. NULL: it holds none. */
void slr_recorded_update(struct slr_graph_page *to, const struct slr_graph_page *from);

/* A node ends. Whether anything that the graph holds was in the node, or is it. */
bool slr_recorded_without(struct slr_graph_page *page, CUgraphNode node);

#endif
