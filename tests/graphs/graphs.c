/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers in CUDA graphs: recorded as frameworks do, replayed in any turn with others, while graphs, buffers and
 * communicators come and go. All of it is right without slipring, too.
 *
 *   graphs CASE [RANKS [processes|threads|near [REPLAYS]]]      threads: the ranks are threads of one process; near: and
 *                                                               their memory is cudaMalloc's, not ncclMemAlloc's
 *   graphs list                                                 REPLAYS: of the case "soak"
 */
#include "graphs.h"

#include <string.h>

void driver(CUresult r, const char *call)
{
    if (r != CUDA_SUCCESS)
        DIE(3, "%s: error %d", call, (int)r);
}

static bool shared; /* memory is ncclMemAlloc's */

void *memory_get(size_t bytes)
{
    void *p;
    if (shared)
        NCCL(ncclMemAlloc(&p, bytes));
    else
        CUDA(cudaMalloc(&p, bytes));
    return p;
}

void memory_put(void *p)
{
    if (shared)
        NCCL(ncclMemFree(p));
    else
        CUDA(cudaFree(p));
}

void buffers_open(struct world *w, struct gather *g, size_t shard, bool in_place)
{
    const size_t all = shard * (size_t)w->nranks;
    *g = (struct gather){.rank = w->rank, .nranks = w->nranks, .shard = shard};
    g->recv = memory_get(all);
    g->send = in_place ? g->recv + (size_t)w->rank * shard : memory_get(shard);
    CUDA(cudaMallocHost((void **)&g->host, all));
}

void buffers_close(struct gather *g)
{
    if (g->send != g->recv + (size_t)g->rank * g->shard)
        memory_put(g->send);
    memory_put(g->recv);
    CUDA(cudaFreeHost(g->host));
}

cudaGraph_t record(struct world *w, struct gather *g)
{
    capture_begin(w->s);
    gather_call(g, w->comm, w->s);
    return capture_end(w->s);
}

void replay(struct world *w, cudaGraphExec_t exec, struct gather *g, const char *what)
{
    w->seed++;
    gather_load(g, w->seed, w->s);
    CUDA(cudaGraphLaunch(exec, w->s));
    gather_check(g, w->seed, w->s, what);
}

void eager(struct world *w, struct gather *g, const char *what)
{
    w->seed++;
    gather_load(g, w->seed, w->s);
    gather_call(g, w->comm, w->s);
    gather_check(g, w->seed, w->s, what);
}

/* ---- the program ---- */

static const struct graph_case *chosen;
static struct rank me;
static unsigned replays; /* 0: as many as usual */

/* Nothing is recorded for the ring before the ranks are connected; those of one process are at the second gather, as
 * NCCL has the first. */
static void first_gather(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    eager(w, &g, "the first gather");
    if (w->threads)
        eager(w, &g, "the second gather");
    buffers_close(&g);
}

static void run(struct world *w)
{
    w->name = chosen->name;
    CUDA(cudaSetDevice(rank_device(w->rank)));
    NCCL(ncclCommInitRank(&w->comm, w->nranks, me.id, w->rank));
    CUDA(cudaStreamCreateWithFlags(&w->s, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&w->side, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&w->back, cudaEventDisableTiming));
    if (!chosen->first)
        first_gather(w);
    chosen->body(w);
    if (w->comm)
        NCCL(ncclCommDestroy(w->comm));
    CUDA(cudaEventDestroy(w->event));
    CUDA(cudaEventDestroy(w->back));
    CUDA(cudaStreamDestroy(w->s));
    CUDA(cudaStreamDestroy(w->side));
}

static void run_one(void *one)
{
    run(one);
}

static void body(struct rank *r)
{
    const int n = r->arg ? *(const int *)r->arg : 0;
    me = *r;
    if (n == 0) {
        struct world w = {.rank = r->rank, .nranks = r->nranks, .replays = replays};
        run(&w);
        return;
    }
    struct world each[8];
    for (int i = 0; i < n; i++)
        each[i] = (struct world){.rank = i, .nranks = n, .threads = true, .replays = replays};
    on_threads(n, each, sizeof *each, run_one);
}

static void choose(const struct graph_case *from, const char *name)
{
    for (; from->name; from++)
        if (strcmp(name, "list") == 0)
            puts(from->name);
        else if (strcmp(name, from->name) == 0)
            chosen = from;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[2]) : 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || n < 2 || n > 8)
        return 2;
    choose(graph_shape_cases, argv[1]);
    choose(graph_life_cases, argv[1]);
    choose(graph_unlike_cases, argv[1]);
    choose(graph_soak_cases, argv[1]);
    choose(graph_memory_cases, argv[1]);
    choose(graph_scatter_cases, argv[1]);
    choose(graph_group_cases, argv[1]);
    choose(graph_body_cases, argv[1]);
    choose(graph_tried_cases, argv[1]);
    choose(graph_ahead_cases, argv[1]);
    choose(graph_first_cases, argv[1]);
    if (strcmp(argv[1], "list") == 0 || !chosen)
        return chosen || strcmp(argv[1], "list") == 0 ? 0 : 2;
    if (chosen->loose)
        setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
    replays = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
    const int seconds = 90 + (int)replays / 20;
    shared = argc > 3 && strcmp(argv[3], "threads") == 0;
    if (shared || (argc > 3 && strcmp(argv[3], "near") == 0))
        return forms_run(1, seconds, body, &n);
    const int status = forms_run(n, seconds, body, NULL);
    return chosen->kills ? status != 137 || wrong_count() : status;
}
