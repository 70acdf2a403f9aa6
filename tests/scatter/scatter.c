/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs and reduce-scatters in every way that programs make them, and in which a guess at what comes next is wrong. All
 * of it is right without slipring, too.
 *
 *   scatter CASE RANKS      RANKS: "3", or "3t": threads of one process, or "4m": two processes of two threads each; with
 *                           an "a" behind it the calls of most cases are all-reduces
 *   scatter list-LIST       the cases of a list
 */
#include "scatter.h"

#include <string.h>

static const struct scatter_case *const lists[] = {
    form_cases,   plain_cases,   between_cases, instead_cases, look_cases,  group_cases,
    unlike_cases, loop_cases,    reuse_cases,   tried_cases,   graph_cases, graph_wrong_cases,
    meet_cases,   changed_cases, end_cases,     kept_cases,    copy_cases};
static const struct scatter_case *chosen;
enum { SHARD_FIRST = 1024 };
static struct rank me;
static bool all;

static void run(void *one)
{
    struct world *w = one;
    CUDA(cudaSetDevice(rank_device(w->rank)));
    NCCL(ncclCommInitRank(&w->comm, w->nranks, me.id, w->rank));
    NCCL(ncclCommSplit(w->comm, 0, w->nranks - 1 - w->rank, &w->reversed, NULL));
    cudaStream_t *const streams[] = {&w->s, &w->side, &w->third};
    for (int i = 0; i < LENGTH(streams); i++)
        CUDA(cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking));
    for (int i = 0; i < LENGTH(w->blocking); i++)
        CUDA(cudaStreamCreate(&w->blocking[i]));
    for (int i = 0; i < LENGTH(w->event); i++)
        CUDA(cudaEventCreateWithFlags(&w->event[i], cudaEventDisableTiming));
    gemm_open(w);
    if (w->threads) { /* the first calls are NCCL's */
        comm_check(w->comm, w->s, SHARD_FIRST, 1, "the first gather");
        comm_check(w->reversed, w->s, SHARD_FIRST, 1, "the first gather");
    }
    chosen->body(w, chosen);
    CUDA(cudaDeviceSynchronize());
    gemm_close(w);
    NCCL(ncclCommDestroy(w->reversed));
    NCCL(ncclCommDestroy(w->comm));
    for (int i = 0; i < LENGTH(w->event); i++)
        CUDA(cudaEventDestroy(w->event[i]));
    for (int i = 0; i < LENGTH(streams); i++)
        CUDA(cudaStreamDestroy(*streams[i]));
    for (int i = 0; i < LENGTH(w->blocking); i++)
        CUDA(cudaStreamDestroy(w->blocking[i]));
}

static void body(struct rank *r)
{
    const int threads = r->arg ? *(const int *)r->arg : 0;
    me = *r;
    if (!threads) {
        struct world w = {.rank = r->rank, .nranks = r->nranks, .all = all};
        run(&w);
        return;
    }
    struct world each[MOST_RANKS];
    for (int i = 0; i < threads; i++)
        each[i] =
            (struct world){.rank = r->rank * threads + i, .nranks = r->nranks * threads, .threads = true, .all = all};
    on_threads(threads, each, sizeof *each, run);
}

static void choose(const char *name)
{
    for (int i = 0; i < LENGTH(lists); i++)
        for (const struct scatter_case *c = lists[i]; c->name; c++)
            if (!strncmp(name, "list-", 5) && !strcmp(name + 5, c->list))
                puts(c->name);
            else if (!strcmp(name, c->name)) {
                CHECK(!chosen, "two cases have one name: %s", name);
                chosen = c;
            }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2)
        return 2;
    choose(argv[1]);
    if (argc == 2)
        return strncmp(argv[1], "list-", 5) ? 2 : 0;
    char *end;
    int n = (int)strtol(argv[2], &end, 10);
    if (!chosen || n < 2 || n > MOST_RANKS) {
        fprintf(stderr, "usage: scatter CASE RANKS | scatter list-LIST\n");
        return 2;
    }
    all = end[strspn(end, "tm")] == 'a';
    const int processes = *end == 't' ? 1 : *end == 'm' ? 2 : n;
    int threads = n / processes;
    return forms_run(processes, 110, body, threads > 1 ? &threads : NULL);
}
