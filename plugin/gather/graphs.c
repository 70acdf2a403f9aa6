/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "plugin/comm/comm.h"
#include "plugin/gather/passed_alone.h"
#include "plugin/util/process.h"

#define BUCKETS 256

/* What one graph holds of one communicator. */
struct held {
    slr_graph graph;
    struct slr_label comm; /* slr_comm's id */
    int rank;
    uint32_t gathers;
    struct held *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *table[BUCKETS];
static _Atomic size_t count; /* of entries: read without the lock by hooks of every graph call */

bool slr_graphs_any(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed) != 0 && !slr_process_off();
}

CUgraph slr_graph_recorded(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    if (!slr_real.cuStreamGetCaptureInfo ||
        slr_real.cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL) != CUDA_SUCCESS)
        return NULL;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : NULL;
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

static void forget(slr_graph graph)
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

/* Adds to what the graph holds of this communicator. Without host memory for it the gathers are not
 * followed. */
static void hold(slr_graph graph, const struct slr_label *comm, int rank, uint32_t gathers)
{
    struct held *h = *bucket(graph);
    while (h && !(same(h->graph, graph) && h->rank == rank && memcmp(&h->comm, comm, sizeof *comm) == 0))
        h = h->next;
    if (!h) {
        h = malloc(sizeof *h);
        if (!h)
            return;
        *h = (struct held){.graph = graph, .comm = *comm, .rank = rank, .next = *bucket(graph)};
        *bucket(graph) = h;
        atomic_fetch_add(&count, 1);
        atomic_fetch_add(&slr_graphs_held, 1);
    }
    h->gathers += gathers;
}

/* `to` may be in the same bucket: new entries are put in front, where the walk does not come by. */
static void add(slr_graph to, slr_graph child)
{
    for (const struct held *h = *bucket(child); h; h = h->next)
        if (same(h->graph, child))
            hold(to, &h->comm, h->rank, h->gathers);
}

void slr_graph_hold(slr_graph graph, const struct slr_comm *c)
{
    if (!graph.handle)
        return;
    pthread_mutex_lock(&lock);
    hold(graph, &c->id, c->rank, 1);
    pthread_mutex_unlock(&lock);
}

void slr_graph_add(slr_graph to, slr_graph child)
{
    if (!slr_graphs_any() || !to.handle || same(to, child))
        return;
    pthread_mutex_lock(&lock);
    add(to, child);
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

void slr_graph_runs(slr_graph graph)
{
    if (!slr_graphs_any())
        return;
    pthread_mutex_lock(&lock);
    for (const struct held *h = *bucket(graph); h; h = h->next) {
        /* NULL when the communicator has ended: graphs may outlive it. */
        struct slr_comm *c = same(h->graph, graph) ? slr_comm_find_id(&h->comm, h->rank) : NULL;
        if (c)
            slr_alone_note(c, SLR_R_CAPTURE, h->gathers);
        slr_comm_put(c);
    }
    pthread_mutex_unlock(&lock);
}
