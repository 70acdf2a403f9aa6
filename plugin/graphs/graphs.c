/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/graphs.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/graphs/recorded.h"
#include "plugin/util/process.h"

struct slr_graph_held {
    struct slr_label comm; /* slr_comm's id */
    int rank;
    uint32_t gathers; /* that are counted; other operations of NCCL's are held as well */
    bool uncounted;   /* some may run any number of times */
    struct slr_graph_held *next;
};

bool slr_graphs_any(void)
{
    return slr_graph_pages() != 0 && !slr_process_off();
}

unsigned long long slr_graph_capture(CUstream stream, CUgraph *graph)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    if (!slr_real.cuStreamGetCaptureInfo ||
        slr_real.cuStreamGetCaptureInfo(stream, &status, &id, graph, NULL, NULL, NULL) != CUDA_SUCCESS)
        return 0;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

CUgraph slr_graph_captured_into(CUstream stream)
{
    CUgraph graph = NULL;
    return slr_graph_capture(stream, &graph) ? graph : NULL;
}

/* ---- pages; under the lock ---- */

static void drop_held(struct slr_graph_page *page)
{
    for (struct slr_graph_held *h; (h = page->held) != NULL;) {
        page->held = h->next;
        free(h);
        atomic_fetch_sub(&slr_graphs_held, 1);
    }
}

static bool orphan(struct slr_graph_page *page, const void *of)
{
    if (page->of == of)
        page->of = NULL;
    return false;
}

/* Its page is torn out; it goes when nobody looks at it any more. */
static void tear_out(struct slr_graph_page *page)
{
    if (page->made)
        slr_graph_search(orphan, page);
    drop_held(page);
    slr_graph_unlink(page);
    if (page->users == 0) {
        slr_recorded_empty(page);
        free(page);
    }
}

/* ---- NCCL's operations; under the lock ---- */

static struct slr_graph_held *held_of(struct slr_graph_page *page, const struct slr_label *comm, int rank)
{
    struct slr_graph_held *h = page->held;
    while (h && !(h->rank == rank && memcmp(&h->comm, comm, sizeof *comm) == 0))
        h = h->next;
    if (h || !(h = malloc(sizeof *h)))
        return h;
    *h = (struct slr_graph_held){.comm = *comm, .rank = rank, .next = page->held};
    page->held = h;
    atomic_fetch_add(&slr_graphs_held, 1);
    return h;
}

/* Adds to what the graph holds of this communicator, and so does each that it is in. */
static void hold(struct slr_graph_page *page, const struct slr_label *comm, int rank, uint32_t gathers, bool uncounted)
{
    while (page) {
        struct slr_graph_held *h = held_of(page, comm, rank);
        if (h) {
            h->gathers += gathers;
            h->uncounted |= uncounted;
        }
        if (page->body) {
            uncounted |= gathers != 0;
            gathers = 0;
        }
        page = page->in ? slr_graph_new_page(page->in) : NULL;
    }
}

static void hold_all(struct slr_graph_page *to, const struct slr_graph_page *from)
{
    for (const struct slr_graph_held *h = from && to && from != to ? from->held : NULL; h; h = h->next)
        hold(to, &h->comm, h->rank, h->gathers, h->uncounted);
}

/* In a node of the graph from now on. */
static void put_in(CUgraph graph, CUgraph of, bool body)
{
    struct slr_graph_page *page = slr_graph_new_page(graph);
    if (page) {
        page->in = of;
        page->body = body;
    }
}

static bool in_body(CUgraph graph)
{
    const struct slr_graph_page *page = slr_graph_page_of(graph);
    while (page && page->in && !page->body)
        page = slr_graph_page_of(page->in);
    return page && page->in && page->body;
}

static bool is_blank(const struct slr_graph_page *page)
{
    return !page->held && !page->in && !page->gathers && !page->lost && !page->made && !page->of && !page->users;
}

static bool is_inner(struct slr_graph_page *page, const void *handle)
{
    return page->in == handle;
}

/* It holds nothing of NCCL's, is in no node, and nothing is in its own. */
static void forget(struct slr_graph_page *page)
{
    drop_held(page);
    page->in = NULL;
    page->body = false;
    for (struct slr_graph_page *inner;
         !page->executable && (inner = slr_graph_search(is_inner, page->handle)) != NULL;) {
        forget(inner);
        if (is_blank(inner))
            tear_out(inner);
    }
}

/* A handle that comes again. */
static void end(struct slr_graph_page *page)
{
    if (page) {
        forget(page);
        tear_out(page);
    }
}

/* ---- what the hooks tell ---- */

static void not_made(unsigned gathers, CUresult r)
{
    slr_log(
        SLR_LOG_WARN, "graph_not_made", "gathers=%u code=%d msg=%s", gathers, (int)r,
        "a graph with captured gathers can not be instantiated for the launch by device code, nor when it is in the "
        "body of a conditional node; SLIPRING_GRAPHS=off leaves its gathers to NCCL");
}

void slr_graph_made(CUgraph graph)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    end(slr_graph_page_of(graph));
    slr_graphs_unlock();
}

void slr_graph_cloned(CUgraph clone, CUgraph graph)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    end(slr_graph_page_of(clone));
    const struct slr_graph_page *from = slr_graph_page_of(graph);
    struct slr_graph_page *to = from ? slr_graph_new_page(clone) : NULL;
    hold_all(to, from);
    if (to)
        slr_recorded_take(to, from, clone, NULL);
    slr_graphs_unlock();
}

void slr_graph_instantiated(CUgraphExec exec, CUgraph graph, CUresult r)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    struct slr_graph_page *from = slr_graph_page_of(graph);
    const unsigned gathers = from ? from->gathers : 0;
    if (r == CUDA_SUCCESS) {
        end(slr_graph_exec_page(exec));
        struct slr_graph_page *to = from ? slr_graph_new_exec_page(exec) : NULL;
        hold_all(to, from);
        if (to && (gathers || from->lost)) {
            to->of = from;
            from->made++;
        }
        if (to)
            slr_recorded_take(to, from, NULL, NULL);
    }
    slr_graphs_unlock();
    if (r != CUDA_SUCCESS && gathers)
        not_made(gathers, r);
}

void slr_graph_updated(CUgraphExec exec, CUgraph graph)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    const struct slr_graph_page *from = slr_graph_page_of(graph);
    struct slr_graph_page *to = from ? slr_graph_new_exec_page(exec) : slr_graph_exec_page(exec);
    if (to) {
        drop_held(to);
        hold_all(to, from);
        slr_recorded_update(to, from);
    }
    slr_graphs_unlock();
}

/* What is embedded in the node is a copy of the child, or the child itself, which has been moved. Both may get more
 * nodes. */
void slr_graph_child_added(CUgraph graph, CUgraph child, CUgraphNode node)
{
    CUgraph inner = NULL;
    unsigned gathers = 0;
    if (slr_real.cuGraphChildGraphNodeGetGraph && slr_real.cuGraphChildGraphNodeGetGraph(node, &inner) != CUDA_SUCCESS)
        inner = NULL;
    slr_graphs_lock();
    struct slr_graph_page *from = slr_graph_page_of(child), *to = from ? slr_graph_new_page(graph) : NULL;
    hold_all(to, from);
    if (inner && inner != child)
        end(slr_graph_page_of(inner));
    if (inner)
        put_in(inner, graph, false);
    if (to && to != from && inner) {
        slr_recorded_take(to, from, inner == child ? NULL : inner, node);
        if (inner == child && from->made == 0) /* it has been moved */
            slr_recorded_empty(from);
        gathers = in_body(graph) ? to->gathers : 0;
    }
    slr_graphs_unlock();
    if (gathers)
        not_made(gathers, CUDA_SUCCESS);
}

void slr_graph_body_added(CUgraph graph, CUgraph body)
{
    slr_graphs_lock();
    end(slr_graph_page_of(body));
    put_in(body, graph, true);
    slr_graphs_unlock();
}

void slr_graph_child_set(CUgraphExec exec, CUgraph child)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    const struct slr_graph_page *from = slr_graph_page_of(child);
    struct slr_graph_page *to = from ? slr_graph_new_exec_page(exec) : NULL;
    for (const struct slr_graph_held *h = to ? from->held : NULL; h; h = h->next)
        hold(to, &h->comm, h->rank, 0, h->uncounted || h->gathers);
    if (to && from->gathers)
        slr_graph_lose(to);
    slr_graphs_unlock();
}

void slr_graph_launch_captured(CUgraph into, CUgraphExec exec)
{
    if (!slr_graphs_any())
        return;
    slr_graphs_lock();
    const struct slr_graph_page *from = slr_graph_exec_page(exec);
    hold_all(from ? slr_graph_new_page(into) : NULL, from);
    slr_graphs_unlock();
}

static bool lose(struct slr_graph_page *page, const void *of)
{
    if (page->of == of)
        slr_graph_lose(page);
    return false;
}

static bool without(struct slr_graph_page *page, const void *node)
{
    if (!page->executable && slr_recorded_without(page, (CUgraphNode)node))
        slr_graph_search(lose, page);
    return false;
}

void slr_graph_node_ends(CUgraphNode node)
{
    if (!node || !slr_graphs_any())
        return;
    slr_graphs_lock();
    slr_graph_search(without, node);
    slr_graphs_unlock();
}

bool slr_graph_ends(CUgraph graph)
{
    bool now = true;
    if (!slr_graphs_any())
        return true;
    slr_graphs_lock();
    struct slr_graph_page *page = slr_graph_page_of(graph);
    if (page && page->made > 0) {
        forget(page);
        page->gone = true;
        now = false;
    } else {
        end(page);
    }
    slr_graphs_unlock();
    return now;
}

CUgraph slr_graph_exec_ends(CUgraphExec exec)
{
    CUgraph late = NULL;
    if (!slr_graphs_any())
        return NULL;
    slr_graphs_lock();
    struct slr_graph_page *page = slr_graph_exec_page(exec), *of = page ? page->of : NULL;
    end(page);
    if (of && --of->made == 0 && of->gone) {
        late = (CUgraph)of->handle;
        end(of);
    }
    slr_graphs_unlock();
    return late;
}

/* ---- NCCL's operations ---- */

void slr_graph_hold(CUgraph graph, const struct slr_comm *c, uint32_t gathers)
{
    slr_graphs_lock();
    hold(slr_graph_new_page(graph), &c->id, c->rank, gathers, false);
    slr_graphs_unlock();
}

struct slr_comm *slr_graph_next_comm(CUgraphExec exec, struct slr_graph_holds *is)
{
    struct slr_comm *c = NULL;
    unsigned n = 0;
    if (!slr_graphs_any())
        return NULL;
    slr_graphs_lock();
    const struct slr_graph_page *page = slr_graph_exec_page(exec);
    for (const struct slr_graph_held *h = page ? page->held : NULL; h && !c; h = h->next)
        if (n++ == is->at) {
            is->at++;
            is->gathers = h->gathers;
            is->uncounted = h->uncounted;
            c = slr_comm_find_id(&h->comm, h->rank);
        }
    slr_graphs_unlock();
    return c;
}
