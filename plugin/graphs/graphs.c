/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/graphs/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/util/process.h"

#define BUCKETS 256

/* What one graph holds of one communicator. */
struct held {
    slr_graph graph;
    struct slr_label comm; /* slr_comm's id */
    int rank;
    uint32_t gathers; /* that are counted; other operations of NCCL's are held as well */
    bool uncounted;   /* some may run any number of times */
    struct held *next;
};

/* A graph in a node of another one: what it gets, that one holds. */
struct part {
    const void *graph, *of;
    bool body; /* of a conditional node */
    struct part *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *table[BUCKETS];
static struct part *parts;
static _Atomic size_t count; /* of all entries: read without the lock by hooks of every graph call */

bool slr_graphs_any(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed) != 0 && !slr_process_off();
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

CUgraph slr_graph_recorded(CUstream stream)
{
    CUgraph graph = NULL;
    return slr_graph_capture(stream, &graph) ? graph : NULL;
}

/* A CUgraph and a CUgraphExec may have the same address: the kind is part of the key. */
static struct held **bucket(slr_graph graph)
{
    return &table[slr_mix((uint64_t)(uintptr_t)graph.handle, graph.executable) % BUCKETS];
}

static bool same(slr_graph a, slr_graph b)
{
    return a.handle == b.handle && a.executable == b.executable;
}

static void forget_held(slr_graph graph)
{
    for (struct held **at = bucket(graph), *h; (h = *at);) {
        if (!same(h->graph, graph)) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        free(h);
        atomic_fetch_sub(&count, 1);
        atomic_fetch_sub(&slr_graphs_held, 1);
    }
}

/* The first that is in the graph, or that the graph is. NULL: none. */
static struct part *part_with(const void *graph, bool in)
{
    struct part *p = parts;
    while (p && (in ? p->of : p->graph) != graph)
        p = p->next;
    return p;
}

static void drop_part(struct part *p)
{
    struct part **at = &parts;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
    atomic_fetch_sub(&count, 1);
}

/* With all that is in its nodes. */
static void forget(slr_graph graph)
{
    forget_held(graph);
    if (graph.executable)
        return;
    for (struct part *p; (p = part_with(graph.handle, false)) != NULL;)
        drop_part(p);
    for (struct part *p; (p = part_with(graph.handle, true)) != NULL;) {
        const slr_graph inner = {p->graph, false};
        drop_part(p);
        forget(inner);
    }
}

/* Without host memory for it what comes is not followed. */
static struct held *entry_of(slr_graph graph, const struct slr_label *comm, int rank)
{
    struct held *h = *bucket(graph);
    while (h && !(same(h->graph, graph) && h->rank == rank && memcmp(&h->comm, comm, sizeof *comm) == 0))
        h = h->next;
    if (h || !(h = malloc(sizeof *h)))
        return h;
    *h = (struct held){.graph = graph, .comm = *comm, .rank = rank, .next = *bucket(graph)};
    *bucket(graph) = h;
    atomic_fetch_add(&count, 1);
    atomic_fetch_add(&slr_graphs_held, 1);
    return h;
}

/* Adds to what the graph holds of this communicator, and so does each that it is in. */
static void hold(slr_graph graph, const struct slr_label *comm, int rank, uint32_t gathers, bool uncounted)
{
    const struct part *p;
    do {
        struct held *h = entry_of(graph, comm, rank);
        if (h) {
            h->gathers += gathers;
            h->uncounted |= uncounted;
        }
        p = graph.executable ? NULL : part_with(graph.handle, false);
        if (p && p->body) {
            uncounted |= gathers != 0;
            gathers = 0;
        }
        if (p)
            graph = (slr_graph){p->of, false};
    } while (p);
}

/* `to` may be in the same bucket: new entries are put in front, where the walk does not come by. */
static void add(slr_graph to, slr_graph child)
{
    for (const struct held *h = *bucket(child); h; h = h->next)
        if (same(h->graph, child))
            hold(to, &h->comm, h->rank, h->gathers, h->uncounted);
}

void slr_graph_hold(slr_graph graph, const struct slr_comm *c, uint32_t gathers)
{
    if (!graph.handle)
        return;
    pthread_mutex_lock(&lock);
    hold(graph, &c->id, c->rank, gathers, false);
    pthread_mutex_unlock(&lock);
}

void slr_graph_part(CUgraph graph, CUgraph of, bool body)
{
    struct part *p = graph ? malloc(sizeof *p) : NULL;
    if (!p)
        return;
    pthread_mutex_lock(&lock);
    *p = (struct part){graph, of, body, parts};
    parts = p;
    atomic_fetch_add(&count, 1);
    pthread_mutex_unlock(&lock);
}

bool slr_graph_in_body(CUgraph graph)
{
    bool body = false;
    if (!slr_graphs_any())
        return false;
    pthread_mutex_lock(&lock);
    for (const struct part *p = part_with(graph, false); p && !body; p = part_with(p->of, false))
        body = p->body;
    pthread_mutex_unlock(&lock);
    return body;
}

void slr_graph_add(slr_graph to, slr_graph child)
{
    if (!slr_graphs_any() || !to.handle || same(to, child))
        return;
    pthread_mutex_lock(&lock);
    add(to, child);
    pthread_mutex_unlock(&lock);
}

void slr_graph_may_run(slr_graph to, slr_graph child)
{
    if (!slr_graphs_any())
        return;
    pthread_mutex_lock(&lock);
    for (const struct held *h = *bucket(child); h; h = h->next)
        if (same(h->graph, child))
            hold(to, &h->comm, h->rank, 0, h->uncounted || h->gathers);
    pthread_mutex_unlock(&lock);
}

void slr_graph_copy(slr_graph to, slr_graph from)
{
    if (!slr_graphs_any() || !to.handle || same(to, from))
        return;
    pthread_mutex_lock(&lock);
    forget(to);
    add(to, from);
    pthread_mutex_unlock(&lock);
}

void slr_graph_forget(slr_graph graph)
{
    if (!slr_graphs_any())
        return;
    pthread_mutex_lock(&lock);
    forget(graph);
    pthread_mutex_unlock(&lock);
}

struct slr_comm *slr_graph_next_comm(slr_graph graph, struct slr_graph_holds *is)
{
    struct slr_comm *c = NULL;
    unsigned n = 0;
    if (!slr_graphs_any())
        return NULL;
    pthread_mutex_lock(&lock);
    for (const struct held *h = *bucket(graph); h && !c; h = h->next)
        if (same(h->graph, graph) && n++ == is->at) {
            is->at++;
            is->gathers = h->gathers;
            is->uncounted = h->uncounted;
            c = slr_comm_find_id(&h->comm, h->rank);
        }
    pthread_mutex_unlock(&lock);
    return c;
}
