/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/recorded.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cache/blocks.h"
#include "plugin/comm/comm.h"
#include "plugin/connect/connect.h"
#include "plugin/memory/exports.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_recorded_graph *list;
static _Atomic unsigned entries;

bool slr_recorded_any(void)
{
    return atomic_load_explicit(&entries, memory_order_relaxed) != 0;
}

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
            slr_exports_register(c, g->block[i]); /* again: it has its place */
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

/* ---- entries; under the lock ---- */

static struct slr_recorded_graph *find(slr_graph graph)
{
    struct slr_recorded_graph *at = list;
    while (at && !(at->graph.handle == graph.handle && at->graph.executable == graph.executable))
        at = at->next;
    return at;
}

static struct slr_recorded_graph *find_or_add(slr_graph graph)
{
    struct slr_recorded_graph *at = find(graph);
    if (at || !(at = calloc(1, sizeof *at)))
        return at;
    *at = (struct slr_recorded_graph){.graph = graph, .next = list};
    list = at;
    atomic_fetch_add(&entries, 1);
    atomic_fetch_add(&slr_graphs_held, 1);
    return at;
}

static void empty(struct slr_recorded_graph *at)
{
    for (unsigned i = 0; i < at->gathers; i++) {
        let_go(&at->gather[i]);
        slr_recorded_drop(&at->gather[i]);
    }
    free(at->gather);
    at->gather = NULL;
    at->gathers = at->room = 0;
}

/* Off the list; it goes when nobody looks at it any more. */
static void unlist(struct slr_recorded_graph *at)
{
    struct slr_recorded_graph **link = &list;
    while (*link && *link != at)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = at->next;
    atomic_fetch_sub(&entries, 1);
    atomic_fetch_sub(&slr_graphs_held, 1);
    if (at->users == 0) {
        empty(at);
        free(at);
    } else {
        at->gone = true;
    }
}

/* Takes over g->nodes and ->stamps. */
static bool append(struct slr_recorded_graph *to, const struct slr_recorded_gather *g)
{
    if (to->gathers == to->room) {
        const unsigned want = to->room ? 2 * to->room : 8;
        struct slr_recorded_gather *larger = realloc(to->gather, want * sizeof *larger);
        if (!larger)
            return false;
        to->gather = larger;
        to->room = want;
    }
    to->gather[to->gathers++] = *g;
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

/* Adds what `from` holds. `graph`: whose nodes are meant then; NULL: the same ones. `child`: the node in which they
 * are; NULL: it is no child. */
static void add(struct slr_recorded_graph *to, const struct slr_recorded_graph *from, CUgraph graph, CUgraphNode child)
{
    to->lost |= from->lost;
    for (unsigned i = 0; i < from->gathers; i++) {
        struct slr_recorded_gather g = from->gather[i];
        if (!take_under(&g, graph, child) || !slr_recorded_copy(&g.nodes, &from->gather[i].nodes, graph)) {
            to->lost = true;
            continue;
        }
        slr_timed_nodes_copy(&g.stamps, &from->gather[i].stamps, graph);
        if (append(to, &g)) {
            keep(&g);
        } else {
            slr_recorded_drop(&g);
            to->lost = true;
        }
    }
    if (to->lost)
        slr_log(SLR_LOG_WARN, "graph_lost", "gathers=%u msg=%s", from->gathers,
                "the nodes of captured gathers could not be found in a copy of their graph: it can not be launched; "
                "SLIPRING_GRAPHS=off leaves captured gathers to NCCL");
}

/* ---- calls ---- */

bool slr_recorded_add(CUgraph graph, struct slr_recorded_gather *gather)
{
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *at = find_or_add(slr_graph_of(graph));
    bool added = at && append(at, gather);
    pthread_mutex_unlock(&lock);
    return added;
}

unsigned slr_recorded_count(CUgraph graph, const struct slr_comm *c)
{
    unsigned n = 0;
    pthread_mutex_lock(&lock);
    const struct slr_recorded_graph *at = find(slr_graph_of(graph));
    for (unsigned i = 0; at && i < at->gathers; i++)
        n += at->gather[i].rank == c->rank && memcmp(&at->gather[i].comm, &c->id, sizeof c->id) == 0;
    pthread_mutex_unlock(&lock);
    return n;
}

void slr_recorded_in_parts(CUgraph graph, const struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    const struct slr_recorded_graph *at = find(slr_graph_of(graph));
    for (unsigned i = at ? at->gathers : 0; i-- > 0;)
        if (at->gather[i].rank == c->rank && memcmp(&at->gather[i].comm, &c->id, sizeof c->id) == 0) {
            at->gather[i].nodes.parts = true;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void slr_recorded_instantiated(CUgraphExec exec, CUgraph graph)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *from = find(slr_graph_of(graph)), *to = find(slr_graph_exec(exec));
    if (to) /* a handle that comes again */
        unlist(to);
    to = from ? find_or_add(slr_graph_exec(exec)) : NULL;
    if (to) {
        to->of = from;
        from->made++;
        add(to, from, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
}

void slr_recorded_cloned(CUgraph clone, CUgraph graph)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *from = find(slr_graph_of(graph)), *to = from ? find_or_add(slr_graph_of(clone)) : NULL;
    if (to) {
        empty(to);
        add(to, from, clone, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void not_made(unsigned gathers, CUresult r)
{
    slr_log(
        SLR_LOG_WARN, "graph_not_made", "gathers=%u code=%d msg=%s", gathers, (int)r,
        "a graph with captured gathers can not be instantiated for the launch by device code, nor when it is in the "
        "body of a conditional node; SLIPRING_GRAPHS=off leaves its gathers to NCCL");
}

void slr_recorded_child(CUgraph graph, CUgraph child, CUgraphNode node)
{
    CUgraph copy = NULL;
    if (!slr_recorded_any() || slr_real.cuGraphChildGraphNodeGetGraph(node, &copy) != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *from = find(slr_graph_of(child)), *to = from ? find_or_add(slr_graph_of(graph)) : NULL;
    if (to && to != from)
        add(to, from, copy == child ? NULL : copy, node); /* it may have been moved into the node */
    if (to && to != from && copy == child && from->made == 0)
        unlist(from);
    pthread_mutex_unlock(&lock);
    if (to && slr_graph_in_body(graph))
        not_made(to->gathers, CUDA_SUCCESS);
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

void slr_recorded_updated(CUgraphExec exec, CUgraph graph)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *to = find(slr_graph_exec(exec));
    const struct slr_recorded_graph *from = find(slr_graph_of(graph));
    const unsigned n = from ? from->gathers : 0;
    if (to && to->gathers != n)
        to->lost = true;
    for (unsigned i = 0; to && !to->lost && i < n; i++) {
        struct slr_recorded_gather g = from->gather[i];
        if (!take_nodes(&g.nodes, &from->gather[i].nodes, &to->gather[i].nodes)) {
            to->lost = true;
            break;
        }
        slr_timed_nodes_update(&g.stamps, &from->gather[i].stamps, &to->gather[i].stamps);
        keep(&g);
        let_go(&to->gather[i]);
        slr_recorded_drop(&to->gather[i]);
        to->gather[i] = g;
    }
    pthread_mutex_unlock(&lock);
}

void slr_recorded_child_set(CUgraphExec exec, CUgraph child)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *to = find(slr_graph_exec(exec));
    if (to && find(slr_graph_of(child)))
        to->lost = true;
    pthread_mutex_unlock(&lock);
}

void slr_recorded_not_instantiated(CUgraph graph, CUresult r)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    const struct slr_recorded_graph *at = find(slr_graph_of(graph));
    const unsigned gathers = at ? at->gathers : 0;
    pthread_mutex_unlock(&lock);
    if (gathers)
        not_made(gathers, r);
}

static bool has_node(const struct slr_recorded *r, CUgraphNode node)
{
    for (uint32_t i = 0; i < r->nodes; i++)
        if (r->node[i].node == node)
            return true;
    return false;
}

/* Under the lock. Whether anything that the graph holds was in the node, or is it. */
static bool without(struct slr_recorded_graph *at, CUgraphNode node)
{
    unsigned left = 0;
    bool hit = false;
    for (unsigned i = 0; i < at->gathers; i++) {
        struct slr_recorded_gather g = at->gather[i];
        if (g.under == node) {
            let_go(&g);
            slr_recorded_drop(&g);
            hit = true;
            continue;
        }
        if (!g.under && has_node(&g.nodes, node))
            hit = at->lost = true;
        at->gather[left++] = g;
    }
    at->gathers = left;
    return hit;
}

void slr_recorded_node_destroyed(CUgraphNode node)
{
    if (!node || !slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    for (struct slr_recorded_graph *at = list; at; at = at->next)
        if (!at->graph.executable && without(at, node))
            for (struct slr_recorded_graph *made = list; made; made = made->next)
                made->lost |= made->of == at;
    pthread_mutex_unlock(&lock);
}

bool slr_recorded_destroys(CUgraph graph)
{
    bool now = true;
    if (!slr_recorded_any())
        return true;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *at = find(slr_graph_of(graph));
    if (at && at->made > 0) {
        at->gone = true;
        now = false;
    } else if (at) {
        unlist(at);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

CUgraph slr_recorded_exec_destroyed(CUgraphExec exec)
{
    CUgraph end = NULL;
    if (!slr_recorded_any())
        return NULL;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *at = find(slr_graph_exec(exec)), *of = at ? at->of : NULL;
    if (at)
        unlist(at);
    if (of && --of->made == 0 && of->gone) {
        end = (CUgraph)of->graph.handle;
        unlist(of);
    }
    pthread_mutex_unlock(&lock);
    return end;
}

void slr_recorded_forget(slr_graph graph)
{
    if (!slr_recorded_any())
        return;
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *at = find(graph);
    if (at)
        unlist(at);
    pthread_mutex_unlock(&lock);
}

struct slr_recorded_graph *slr_recorded_find(CUgraphExec exec)
{
    pthread_mutex_lock(&lock);
    struct slr_recorded_graph *at = find(slr_graph_exec(exec));
    if (at)
        at->users++;
    pthread_mutex_unlock(&lock);
    return at;
}

void slr_recorded_put(struct slr_recorded_graph *graph)
{
    pthread_mutex_lock(&lock);
    if (--graph->users == 0 && graph->gone && graph->graph.executable) {
        empty(graph);
        free(graph);
    }
    pthread_mutex_unlock(&lock);
}
