/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces of cuBLAS. A GEMM with one writes it, as any of the program's operations would: it is ordered, and what
 * lies there afterwards is not known (plan_host.c). */
#include "planner.h"

enum { ALIGNED = 256 };

/* What the last call sent or received, which peers may still read or write; or any other buffer but the operands. */
static int scratch_buffer(struct planner *p, int rank, int from, int to, const struct gemm *g)
{
    const int factors = g->narrow ? g->factors.buffer : to;
    const struct known *known = &p->known[rank];
    const uint64_t way = extra(p, rank, 3);
    int b = way == 0 ? known->sent : way == 1 ? known->received : (int)extra(p, rank, DATA + OUTS);
    while (b == from || b == to || b == factors || b >= DATA + OUTS)
        b = (int)extra(p, rank, DATA + OUTS);
    return b;
}

static void set(struct planner *p, int rank, int from, int to, struct gemm *g)
{
    g->scratch.buffer = scratch_buffer(p, rank, from, to, g);
    const size_t most = p->plan->size[g->scratch.buffer] / ALIGNED;
    const size_t units = 1 + extra(p, rank, extra(p, rank, 2) ? most : 8);
    g->scratch.off = extra(p, rank, most - units + 1) * ALIGNED;
    g->scratch_bytes = units * ALIGNED;
}

static bool may_keep(const struct worker *w, int stream, int from, int to)
{
    return w->bytes && w->stream == stream && w->at.buffer != from && w->at.buffer != to;
}

static void of_handle(struct planner *p, int rank, int stream, int from, int to, struct gemm *g)
{
    struct worker *w = &p->known[rank].worker;
    const uint64_t way = extra(p, rank, 8);
    if (way < 3 && may_keep(w, stream, from, to)) {
        g->handle = HANDLE_KEEPS;
        g->scratch = w->at;
        g->scratch_bytes = w->bytes;
        return;
    }
    g->handle = way == 3 ? HANDLE_RESETS : way == 4 ? HANDLE_NEW : HANDLE_SETS;
    if (g->handle == HANDLE_SETS)
        set(p, rank, from, to, g);
    *w = (struct worker){stream, g->scratch, g->scratch_bytes};
}

void scratch_before(struct planner *p, int rank, int stream, int from, int to, struct gemm *g)
{
    if (!has(p, KIND_workspace) || extra(p, rank, 3) == 0)
        return;
    if (g->narrow)
        set(p, rank, from, to, g);
    else
        of_handle(p, rank, stream, from, to, g);
    if (g->scratch_bytes)
        need(p, rank, stream, NULL, g->scratch.buffer, true);
}

void scratch_behind(struct planner *p, int rank, int stream, const struct gemm *g)
{
    if (g->scratch_bytes)
        also_writes(p, rank, stream, g->scratch.buffer);
}
