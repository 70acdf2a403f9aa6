/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the book's pages. */
#include <pthread.h>
#include <stdlib.h>
#include "base/hash.h"
#include "plugin/graphs/recorded.h"

#define BUCKETS 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_graph_page *table[BUCKETS];
static _Atomic size_t pages;

void slr_graphs_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slr_graphs_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

size_t slr_graph_pages(void)
{
    return atomic_load_explicit(&pages, memory_order_relaxed);
}

/* A CUgraph and a CUgraphExec may have the same address: the kind is part of the key. */
static struct slr_graph_page **bucket(const void *handle, bool executable)
{
    return &table[slr_mix((uint64_t)(uintptr_t)handle, executable) % BUCKETS];
}

static struct slr_graph_page *find(const void *handle, bool executable)
{
    struct slr_graph_page *page = *bucket(handle, executable);
    while (page && (page->handle != handle || page->executable != executable))
        page = page->next;
    return page;
}

static struct slr_graph_page *find_or_add(const void *handle, bool executable)
{
    struct slr_graph_page *page = handle ? find(handle, executable) : NULL, **at = bucket(handle, executable);
    if (page || !handle || !(page = malloc(sizeof *page)))
        return page;
    *page = (struct slr_graph_page){.handle = handle, .executable = executable, .next = *at};
    *at = page;
    atomic_fetch_add(&pages, 1);
    return page;
}

struct slr_graph_page *slr_graph_page_of(CUgraph graph)
{
    return find(graph, false);
}

struct slr_graph_page *slr_graph_exec_page(CUgraphExec exec)
{
    return find(exec, true);
}

struct slr_graph_page *slr_graph_new_page(CUgraph graph)
{
    return find_or_add(graph, false);
}

struct slr_graph_page *slr_graph_new_exec_page(CUgraphExec exec)
{
    return find_or_add(exec, true);
}

struct slr_graph_page *slr_graph_search(bool (*match)(struct slr_graph_page *page, const void *what), const void *what)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct slr_graph_page *page = table[i]; page; page = page->next)
            if (match(page, what))
                return page;
    return NULL;
}

void slr_graph_lose(struct slr_graph_page *page)
{
    if (!page->lost)
        atomic_fetch_add(&slr_graphs_held, 1); /* its launches are to be refused */
    page->lost = true;
}

void slr_graph_unlink(struct slr_graph_page *page)
{
    struct slr_graph_page **at = bucket(page->handle, page->executable);
    while (*at != page)
        at = &(*at)->next;
    *at = page->next;
    page->gone = true;
    atomic_fetch_sub(&pages, 1);
    if (page->lost)
        atomic_fetch_sub(&slr_graphs_held, 1);
}
