/* SPDX-License-Identifier: Apache-2.0 */
/* Which thread of a rank makes a call, and how the call reaches CUDA. None of it is order: the threads take turns in
 * the order of the plan. */
#include "planner.h"

void draw_ways(struct planner *p)
{
    struct plan *plan = p->plan;
    plan->two_threads = has(p, KIND_ptds) && hash64(p->key, 21) % 2 == 0;
    if (plan->two_threads && plan->nstreams < 2)
        plan->nstreams = 2;
    plan->conditional = has(p, KIND_conditional) && hash64(p->key, 24) % 2 == 0;
    if (!has(p, KIND_deepbind) || hash64(p->key, 22) % 2)
        return;
    for (int r = 0; r < plan->nranks; r++) /* not on all ranks, or later on some */
        plan->bound_from[r] = extra(p, r, 5) == 0 ? 0 : 1 + (int)(hash64(p->key, 23) % 4 + extra(p, r, 8));
}

static int thread_of(struct planner *p, const struct op *op)
{
    if (!p->plan->two_threads)
        return 0;
    if (p->as[op->rank])
        return p->as[op->rank] - 1;
    return op->stream >= 0 && op->stream < 2 ? op->stream : (int)extra(p, op->rank, 2);
}

/* Calls of CUDA alone. */
static bool has_ways(const struct op *op)
{
    switch (op->kind) {
    case OP_COPY:
    case OP_SET:
    case OP_FILL:
    case OP_LOOK:
    case OP_RECORD:
    case OP_WAIT:
    case OP_QUERY:
    case OP_SYNC_EVENT:
    case OP_SYNC_STREAM:
    case OP_SYNC_DEVICE:
    case OP_HOLD:
    case OP_RENEW:
        return true;
    default:
        return false;
    }
}

void choose_way(struct planner *p, struct op *op)
{
    const int from = p->plan->bound_from[op->rank];
    op->thread = thread_of(p, op);
    if (!has_ways(op))
        return;
    if (from && p->step >= from && extra(p, op->rank, 3) == 0)
        op->by = BY_BOUND;
    else if (p->plan->two_threads && extra(p, op->rank, 2))
        op->by = BY_PTSZ;
}

void one_thread_begin(struct planner *p, int rank, int stream)
{
    p->as[rank] = 1 + (stream < 2 ? stream : (int)extra(p, rank, 2));
}

void one_thread_end(struct planner *p, int rank)
{
    p->as[rank] = 0;
}
