/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/recorded.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/comm/comm.h"
#include "plugin/connect/connect.h"
#include "plugin/memory/exports.h"

/* ---- what a gather keeps of its communicator ---- */

static void keep(const struct slr_recorded_gather *g)
{
    for (int i = 0; i < 2; i++)
        if (g->block[i])
            slr_external_hold_again(g->block[i]);
    struct slr_comm *c = slr_comm_find_id(&g->comm, g->rank);
    if (!c)
        return;
    atomic_fetch_add(&c->link->calls, 1);
    for (int i = 0; i < 2; i++)
        if (g->block[i])
            slr_exports_register(c, g->block[i], true); /* again: it has its place */
    slr_comm_put(c);
}

static void let_go(const struct slr_recorded_gather *g)
{
    struct slr_comm *c = slr_comm_find_id(&g->comm, g->rank);
    for (int i = 0; i < 2; i++) {
        if (!g->block[i])
            continue;
        if (c)
            slr_exports_unregister(c, g->block[i], false);
        slr_external_release(g->block[i]);
    }
    if (!c)
        return;
    atomic_fetch_sub(&c->link->calls, 1);
    slr_comm_put(c);
}

void slr_recorded_drop(struct slr_recorded_gather *gather)
{
    slr_recorded_free(&gather->nodes);
    slr_timed_nodes_free(&gather->stamps);
}

/* ---- pages; under the lock ---- */

/* Launches of executable graphs are looked at while any page holds something. */
static void count(struct slr_graph_page *page, unsigned gathers)
{
    if (!page->gathers != !gathers)
        atomic_fetch_add(&slr_graphs_held, gathers ? 1u : -1u);
    page->gathers = gathers;
}

void slr_recorded_empty(struct slr_graph_page *page)
{
    for (unsigned i = 0; i < page->gathers; i++) {
        let_go(&page->gather[i]);
        slr_recorded_drop(&page->gather[i]);
    }
    free(page->gather);
    page->gather = NULL;
    count(page, 0);
    page->room = 0;
}

/* Takes over g->nodes and ->stamps. */
static bool append(struct slr_graph_page *to, const struct slr_recorded_gather *g)
{
    if (to->gathers == to->room) {
        const unsigned want = to->room ? 2 * to->room : 8;
        struct slr_recorded_gather *larger = realloc(to->gather, want * sizeof *larger);
        if (!larger)
            return false;
        to->gather = larger;
        to->room = want;
    }
    to->gather[to->gathers] = *g;
    count(to, to->gathers + 1);
    return true;
}

/* Which node of the graph, or of its clone, it is in: `child`, if it comes with that. */
static bool take_under(struct slr_recorded_gather *g, CUgraph clone, CUgraphNode child)
{
    const CUgraphNode under = g->under;
    if (child)
        g->under = child;
    return child || !clone || !under || slr_real.cuGraphNodeFindInClone(&g->under, under, clone) == CUDA_SUCCESS;
}

void slr_recorded_take(struct slr_graph_page *to, const struct slr_graph_page *from, CUgraph graph, CUgraphNode child)
{
    if (!from->gathers && !from->lost)
        return;
    if (from->lost)
        slr_graph_lose(to);
    for (unsigned i = 0; i < from->gathers; i++) {
        struct slr_recorded_gather g = from->gather[i];
        if (!take_under(&g, graph, child) || !slr_recorded_copy(&g.nodes, &from->gather[i].nodes, graph)) {
            slr_graph_lose(to);
            continue;
        }
        slr_timed_nodes_copy(&g.stamps, &from->gather[i].stamps, graph);
        if (append(to, &g)) {
            keep(&g);
        } else {
            slr_recorded_drop(&g);
            slr_graph_lose(to);
        }
    }
    if (to->lost)
        slr_log(SLR_LOG_WARN, "graph_lost", "gathers=%u msg=%s", from->gathers,
                "the nodes of captured gathers could not be found in a copy of their graph: it can not be launched; "
                "SLIPRING_GRAPHS=off leaves captured gathers to NCCL");
}

/* The nodes of a copy that was given another graph's values: its own, with what those say. */
static bool take_nodes(struct slr_recorded *to, const struct slr_recorded *values, const struct slr_recorded *own)
{
    if (values->nodes != own->nodes || !slr_recorded_copy(to, values, NULL))
        return false;
    for (uint32_t i = 0; i < to->nodes; i++)
        to->node[i].node = own->node[i].node;
    return true;
}

void slr_recorded_update(struct slr_graph_page *to, const struct slr_graph_page *from)
{
    const unsigned n = from ? from->gathers : 0;
    if (to->gathers != n)
        slr_graph_lose(to);
    for (unsigned i = 0; !to->lost && i < n; i++) {
        struct slr_recorded_gather g = from->gather[i];
        if (!take_nodes(&g.nodes, &from->gather[i].nodes, &to->gather[i].nodes)) {
            slr_graph_lose(to);
            break;
        }
        slr_timed_nodes_update(&g.stamps, &from->gather[i].stamps, &to->gather[i].stamps);
        keep(&g);
        let_go(&to->gather[i]);
        slr_recorded_drop(&to->gather[i]);
        to->gather[i] = g;
    }
}

static bool has_node(const struct slr_recorded *r, CUgraphNode node)
{
    for (uint32_t i = 0; i < r->nodes; i++)
        if (r->node[i].node == node)
            return true;
    return false;
}

bool slr_recorded_without(struct slr_graph_page *page, CUgraphNode node)
{
    unsigned left = 0;
    bool hit = false;
    for (unsigned i = 0; i < page->gathers; i++) {
        struct slr_recorded_gather g = page->gather[i];
        if (g.under == node) {
            let_go(&g);
            slr_recorded_drop(&g);
            hit = true;
            continue;
        }
        if (!g.under && has_node(&g.nodes, node)) {
            slr_graph_lose(page);
            hit = true;
        }
        page->gather[left++] = g;
    }
    count(page, left);
    return hit;
}

/* ---- calls ---- */

bool slr_recorded_add(CUgraph graph, struct slr_recorded_gather *gather)
{
    slr_graphs_lock();
    struct slr_graph_page *page = slr_graph_new_page(graph);
    const bool added = page && append(page, gather);
    slr_graphs_unlock();
    return added;
}

static bool is_of(const struct slr_recorded_gather *g, const struct slr_comm *c)
{
    return g->rank == c->rank && memcmp(&g->comm, &c->id, sizeof c->id) == 0;
}

unsigned slr_recorded_count(CUgraph graph, const struct slr_comm *c)
{
    unsigned n = 0;
    slr_graphs_lock();
    const struct slr_graph_page *page = slr_graph_page_of(graph);
    for (unsigned i = 0; page && i < page->gathers; i++)
        n += is_of(&page->gather[i], c);
    slr_graphs_unlock();
    return n;
}

void slr_recorded_in_parts(CUgraph graph, const struct slr_comm *c)
{
    slr_graphs_lock();
    const struct slr_graph_page *page = slr_graph_page_of(graph);
    for (unsigned i = page ? page->gathers : 0; i-- > 0;)
        if (is_of(&page->gather[i], c)) {
            page->gather[i].nodes.parts = true;
            break;
        }
    slr_graphs_unlock();
}

struct slr_graph_page *slr_recorded_find(CUgraphExec exec)
{
    slr_graphs_lock();
    struct slr_graph_page *page = slr_graph_exec_page(exec);
    if (page && !page->gathers && !page->lost)
        page = NULL;
    if (page)
        page->users++;
    slr_graphs_unlock();
    return page;
}

void slr_recorded_put(struct slr_graph_page *page)
{
    slr_graphs_lock();
    if (--page->users == 0 && page->gone) {
        slr_recorded_empty(page);
        free(page);
    }
    slr_graphs_unlock();
}
