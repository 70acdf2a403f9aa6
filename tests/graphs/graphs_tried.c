/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that some ranks capture before a choice of the trials holds and others behind it, or before and behind other calls
 * that trials look at: a capture is no communication, and what is captured is one way on all ranks. */
#include "graphs.h"

#define CALLS 150 /* outside of graphs: the ways are tried and one is chosen */
#define ROUNDS 4
#define SMALL ((size_t)512 << 10) /* of two ranks less than SLIPRING_MIN_BYTES, and more than an eighth */
#define LARGE ((size_t)2 << 20)

static bool is_early(const struct world *w)
{
    return w->rank == 0;
}

static void replays(struct world *w, cudaGraph_t graph, struct gather *g)
{
    cudaGraphExec_t exec = graph_executable(graph);
    for (int n = 0; n < ROUNDS; n++) {
        replay(w, exec, g, "captured at another time");
        eager(w, g, "beside it");
    }
    CUDA(cudaGraphExecDestroy(exec));
}

static void chosen(struct world *w)
{
    struct gather g;
    cudaGraph_t graph = NULL, again;
    buffers_open(w, &g, SHARD, false);
    nccl_connects(w->comm, w->s);
    if (is_early(w))
        graph = record(w, &g);
    for (int n = 0; n < CALLS; n++)
        eager(w, &g, "while ways are tried");
    if (!is_early(w))
        graph = record(w, &g);
    again = record(w, &g);
    replays(w, graph, &g);
    replays(w, again, &g);
    buffers_close(&g);
}

/* The first large gather makes small ones interesting. */
static void small(struct world *w)
{
    struct gather g, large;
    cudaGraph_t graph = NULL;
    buffers_open(w, &g, SMALL, false);
    buffers_open(w, &large, LARGE, false);
    nccl_connects(w->comm, w->s);
    eager(w, &g, "a small gather"); /* NCCL's, whose all-gathers are connected now */
    if (is_early(w))
        graph = record(w, &g);
    eager(w, &large, "a large gather");
    if (!is_early(w))
        graph = record(w, &g);
    cudaGraphExec_t exec = graph_executable(graph);
    for (int n = 0; n < ROUNDS; n++) {
        replay(w, exec, &g, "a small one, captured at another time");
        eager(w, &large, "beside it");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&large);
}

const struct graph_case graph_tried_cases[] = {
    {.name = "tried", .body = chosen},
    {.name = "tried-small", .body = small},
    {.name = NULL},
};
