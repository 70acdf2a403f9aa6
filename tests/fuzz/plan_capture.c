/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of collectives: thrown away, launched, and in bodies of conditional nodes. */
#include "planner.h"

static void record_calls(struct planner *p, int rank, const struct draft *d, int n, int launches)
{
    const int stream = d[0].stream[rank];
    one_thread_begin(p, rank, stream);
    put_down(p, OP_CAPTURE, rank, stream)->value = (int)draw(p, rank, 2);
    p->captured = launches ? 1 : 2;
    for (int i = 0; i < n; i++)
        put_call(p, rank, &d[i]);
    p->captured = 0;
    struct op *end = put_down(p, OP_CAPTURE_END, rank, stream);
    end->call = launches;
    end->value = (int)draw(p, rank, 2);
    one_thread_end(p, rank);
}

/* Some ranks record one or two calls and throw the graph away: nothing has happened. */
static void throw_away(struct planner *p)
{
    struct draft d[2];
    const int n = 1 + (int)uniform(p, 2), who = (int)uniform(p, 3), one = (int)uniform(p, (uint64_t)p->plan->nranks);
    for (int i = 0; i < n; i++)
        draw_call(p, &d[i], (int)uniform(p, (uint64_t)p->plan->ncomms));
    draw_parts(p, d, n);
    for (int r = 0; r < p->plan->nranks; r++) {
        d[n - 1].stream[r] = d[0].stream[r];
        if (who == 0 || (who == 1 && r == one) || (who == 2 && ONE_IN(p, r, 2)))
            record_calls(p, r, d, n, 0);
    }
}

/* All ranks record a call, or two, and launch that once or twice. NCCL does not promise an order between what a graph
 * runs and the communicators' other calls, so the program makes one. */
static void put_replay(struct planner *p, int rank, struct draft *d, int n, int launches)
{
    struct known *known = &p->known[rank];
    const int stream = d[n - 1].stream[rank] = d[0].stream[rank];
    for (int i = 0; i < n; i++) {
        make_edges(p, rank, &d[i], 1);
        need_all(p, rank, stream, &known->seen[COMM + call_of(p, &d[i])->comm]);
    }
    record_calls(p, rank, d, n, launches);
    for (int i = 0; i < n; i++)
        note_calls(p, rank, &d[i], 1);
    for (int i = 0; i < n; i++)
        known->graphs[call_of(p, &d[i])->comm] = known->seen[stream];
}

static void replay(struct planner *p)
{
    struct draft d[2];
    const int n = has(p, KIND_sums) ? 1 + (int)uniform(p, 2) : 1;
    bool once = false;
    for (int i = 0; i < n; i++)
        draw_call(p, &d[i], (int)uniform(p, (uint64_t)p->plan->ncomms));
    draw_parts(p, d, n);
    for (int i = 0; i < n; i++)
        once |= adds_up(p, &d[i]);
    const int launches = once ? 1 : 1 + (int)uniform(p, 2);
    for (int r = 0; r < p->plan->nranks; r++) {
        for (int i = 0; i < n; i++)
            prepare(p, r, &d[i]);
        for (int i = 0; i < n; i++)
            prepare_matrix(p, r, &d[i]);
    }
    for (int r = 0; r < p->plan->nranks; r++)
        put_replay(p, r, d, n, launches);
    for (int r = 0; r < p->plan->nranks; r++)
        for (int i = 0; i < n; i++)
            behind_call(p, r, &d[i]);
}

/* Each rank has a conditional node of its own kind. */
static struct branch draw_branch(struct planner *p, int rank, int runs)
{
    struct branch b = {.kind = 1 + (unsigned)extra(p, rank, BRANCHES - 1)};
    b.bodies = b.kind == BRANCH_WHILE ? 1 : b.kind + (int)extra(p, rank, 2) - (b.kind == BRANCH_SWITCH);
    b.body = (int)extra(p, rank, (uint64_t)b.bodies);
    b.value = b.kind == BRANCH_WHILE ? runs
              : b.kind == BRANCH_IF  ? (runs != 0) == (b.body == 0)
                                     : (b.body + (runs == 0)) % (b.bodies + 1);
    return b;
}

struct body {
    struct branch branch;
    int copy; /* into this buffer; -1: none */
    int launches;
};

/* It runs several times, so all that it does is such that once is as often. Before all ranks' calls, and behind. */
static void begin_body(struct planner *p, int rank, const struct draft *d, int runs, struct body *b)
{
    const int stream = d->stream[rank], from = d->from[rank].buffer, to = d->to[rank].buffer;
    *b = (struct body){draw_branch(p, rank, runs), (int)extra(p, rank, DATA), runs};
    if (b->branch.kind == BRANCH_WHILE || runs == 0)
        b->launches = 1;
    if (b->copy == from || b->copy == to)
        b->copy = -1;
    make_edges(p, rank, d, 1);
    need_all(p, rank, stream, &p->known[rank].seen[COMM + call_of(p, d)->comm]);
    if (b->copy >= 0)
        need(p, rank, stream, NULL, b->copy, true);
    one_thread_begin(p, rank, stream);
    struct op *op = put_down(p, OP_CAPTURE, rank, stream);
    op->branch = b->branch;
    p->captured = runs ? 1 : 2;
    if (from != to && extra(p, rank, 2)) {
        op = put_down(p, OP_SET, rank, stream);
        op->to = d->to[rank];
        op->value = 0xa5;
        op->bytes = call_of(p, d)->bytes;
    }
    put_call(p, rank, d);
    p->captured = 0;
}

static void end_body(struct planner *p, int rank, const struct draft *d, int runs, const struct body *b)
{
    const int stream = d->stream[rank];
    p->captured = runs ? 1 : 2;
    if (b->copy >= 0) {
        struct op *op = put_down(p, OP_COPY, rank, stream);
        op->from = d->to[rank];
        op->to.buffer = b->copy;
        op->bytes = call_of(p, d)->bytes;
    }
    p->captured = 0;
    struct op *end = put_down(p, OP_CAPTURE_END, rank, stream);
    end->branch = b->branch;
    end->call = b->launches;
    one_thread_end(p, rank);
    if (!runs)
        return;
    note_calls(p, rank, d, 1);
    if (b->copy >= 0)
        also_writes(p, rank, stream, b->copy);
    p->known[rank].graphs[call_of(p, d)->comm] = p->known[rank].seen[stream];
}

/* All ranks record a call into a body, which runs never or some times. */
static void in_bodies(struct planner *p)
{
    struct draft d;
    struct body bodies[RANKS];
    draw_call(p, &d, (int)uniform(p, (uint64_t)p->plan->ncomms));
    draw_parts(p, &d, 1);
    const int runs = (int)uniform(p, adds_up(p, &d) ? 2 : 4);
    for (int r = 0; r < p->plan->nranks; r++) {
        prepare(p, r, &d);
        prepare_matrix(p, r, &d);
    }
    for (int r = 0; r < p->plan->nranks; r++)
        begin_body(p, r, &d, runs, &bodies[r]);
    for (int r = 0; r < p->plan->nranks; r++)
        end_body(p, r, &d, runs, &bodies[r]);
    for (int r = 0; r < p->plan->nranks && runs; r++)
        behind_call(p, r, &d);
}

void capture_step(struct planner *p)
{
    if (p->plan->conditional && hash64(p->key, 31) % 3) {
        in_bodies(p);
        return;
    }
    if (uniform(p, 3) && has(p, KIND_capture))
        throw_away(p);
    else if (has(p, KIND_replay))
        replay(p);
}
