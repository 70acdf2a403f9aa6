/* SPDX-License-Identifier: Apache-2.0 */
/* The book's pages (graphs.h). All under its lock. */
#ifndef SLR_PLUGIN_GRAPHS_GRAPHS_IMPL_H
#define SLR_PLUGIN_GRAPHS_GRAPHS_IMPL_H

#include "plugin/graphs/recorded.h"

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
