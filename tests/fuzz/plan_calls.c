/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do together: collectives, and groups of them. */
#include "planner.h"

#include <string.h>

static const struct {
    ncclDataType_t type;
    size_t bytes;
    bool integer;
} types[] = {{ncclInt8, 1, true},     {ncclUint8, 1, true}, {ncclFloat16, 2, false}, {ncclBfloat16, 2, false},
             {ncclFloat32, 4, false}, {ncclInt32, 4, true}, {ncclUint32, 4, true},   {ncclInt64, 8, true},
             {ncclFloat64, 8, false}, {ncclUint64, 8, true}};
enum { TYPES = sizeof types / sizeof *types };

struct call *call_of(struct planner *p, const struct draft *d)
{
    return &p->plan->calls[d->number];
}

int new_call(struct plan *plan)
{
    if (plan->ncalls == plan->calls_room) {
        plan->calls_room = plan->calls_room * 2 + 64;
        plan->calls = realloc(plan->calls, (size_t)plan->calls_room * sizeof *plan->calls);
        CHECK(plan->calls, "no memory");
    }
    plan->calls[plan->ncalls] = (struct call){.op = {-1, -1, -1, -1}};
    return plan->ncalls++;
}

static enum op_kind any_kind(struct planner *p)
{
    if (has(p, KIND_scatter) && uniform(p, 6) == 0)
        return OP_SCATTER;
    if (has(p, KIND_sums) && uniform(p, 5) == 0)
        return OP_REDUCE;
    const uint64_t way = uniform(p, 10);
    if (way == 0 && has(p, KIND_broadcast))
        return OP_BROADCAST;
    if (way < 3 && has(p, KIND_reduce))
        return OP_REDUCE;
    if (way == 3 && has(p, KIND_sendrecv))
        return OP_SENDRECV;
    return OP_GATHER;
}

static int64_t draw_inner(struct planner *p)
{
    static const int64_t inner[] = {4, 8, 16, 32, 33, 64, 128, 256};
    return inner[uniform(p, sizeof inner / sizeof *inner)];
}

static void draw_matrix(struct planner *p, struct draft *d, struct call *c)
{
    const struct plan *plan = p->plan;
    d->k = draw_inner(p);
    d->elem = plan->elem;
    d->sent = SOURCE_INTEGERS;
    const int64_t fit = (int64_t)(plan->shard / plan->elem) / d->k;
    const int64_t columns = 1 + (int64_t)uniform(p, fit > 1 ? (uint64_t)fit : 1);
    c->type = plan_type(plan);
    c->count = (size_t)(columns * d->k);
    d->columns = columns * plan->team[c->comm].size;
    c->bytes = c->count * d->elem;
    if (c->bytes > plan->shard) { /* a column is too long: any bytes */
        d->k = 0;
        d->sent = SOURCE_NOISE;
        c->count = plan->shard / d->elem;
        c->bytes = c->count * d->elem;
    }
}

ncclRedOp_t exact_average(const struct planner *p, int comm)
{
    const int n = p->plan->team[comm].size;
    return (n & (n - 1)) == 0 ? ncclAvg : ncclSum;
}

/* What all get may be a matrix. */
static void sum_matrix(struct planner *p, struct draft *d, struct call *c)
{
    const size_t k = (size_t)draw_inner(p);
    if (c->kind != OP_REDUCE || d->sent != SOURCE_INTEGERS || c->count < k)
        return;
    d->k = (int64_t)k;
    d->columns = (int64_t)(c->count / k);
    c->count = (size_t)d->columns * k;
}

/* Integers of the plan's type or in fp16, which are types that slipring adds. */
static void draw_sum(struct planner *p, struct draft *d, struct call *c)
{
    const struct plan *plan = p->plan;
    const bool halves = uniform(p, 4) == 0;
    size_t most = plan->shard * (c->kind == OP_REDUCE && uniform(p, 2) ? (size_t)plan->nranks : 1);
    const uint64_t size = uniform(p, 8), op = uniform(p, 8);
    d->sent = halves ? SOURCE_HALVES : SOURCE_INTEGERS;
    d->elem = halves ? 2 : plan->elem;
    c->type = halves ? ncclFloat16 : plan_type(plan);
    c->redop = op == 0 ? ncclMax : op == 1 ? ncclMin : op < 4 ? exact_average(p, c->comm) : ncclSum;
    most = size == 0 ? RANKS * d->elem : size < 3 ? 100 : most; /* also fewer elements than ranks */
    c->count = 1 + uniform(p, most / d->elem);
    if (uniform(p, 2))
        sum_matrix(p, d, c);
    c->bytes = c->count * d->elem;
}

void draw_call(struct planner *p, struct draft *d, int comm)
{
    *d = (struct draft){.number = new_call(p->plan)};
    struct call *c = call_of(p, d);
    c->comm = comm;
    c->kind = any_kind(p);
    if (c->kind == OP_GATHER && uniform(p, 2)) {
        draw_matrix(p, d, c);
        return;
    }
    if ((c->kind == OP_SCATTER || (c->kind == OP_REDUCE && has(p, KIND_sums))) && uniform(p, 3)) {
        draw_sum(p, d, c);
        return;
    }
    int t;
    do
        t = (int)uniform(p, TYPES);
    while (is_sum(c) && !types[t].integer);
    const size_t most =
        c->kind == OP_GATHER || c->kind == OP_SCATTER || !uniform(p, 2) ? p->plan->shard : 2 * p->plan->shard;
    d->elem = types[t].bytes;
    c->type = types[t].type;
    c->count = 1 + uniform(p, (uniform(p, 3) ? most : 100) / d->elem);
    c->bytes = c->count * d->elem;
    static const ncclRedOp_t reductions[] = {ncclSum, ncclMax, ncclMin};
    c->redop = reductions[uniform(p, 3)];
    c->root = (int)uniform(p, (uint64_t)p->plan->team[comm].size);
    c->shift = 1 + (int)uniform(p, (uint64_t)p->plan->team[comm].size - 1);
}

/* A rank's part of the i-th call of a step: its own receive buffer for each call, and two to send from for all. */
static void place_call(struct planner *p, int rank, struct draft *d, int i, const int *order)
{
    const struct call *c = call_of(p, d);
    const struct team *team = &p->plan->team[c->comm];
    const size_t all = c->bytes * (size_t)(c->kind == OP_GATHER ? team->size : 1);
    struct place *from = &d->from[rank], *to = &d->to[rank];
    d->stream[rank] = any_stream(p, rank);
    *to = (struct place){order[i], 0};
    *from = (struct place){order[MOST_GROUP + (int)draw(p, rank, 2)], 0};
    if (d->sent && has(p, KIND_sums)) /* integers of two types do not lie in one buffer */
        from->buffer = order[MOST_GROUP + (d->sent == SOURCE_HALVES)];
    if (!d->k && !ONE_IN(p, rank, 3))
        to->off = draw(p, rank, (p->plan->size[to->buffer] - all) / d->elem + 1) * d->elem;
    if (!ONE_IN(p, rank, 3))
        from->off = draw(p, rank, (p->plan->size[from->buffer] - sent_bytes(p->plan, c)) / d->elem + 1) * d->elem;
    if (c->kind == OP_SCATTER && ONE_IN(p, rank, 3)) { /* in place, in this call's own buffer */
        from->buffer = to->buffer;
        to->off = from->off + (size_t)team->rank[rank] * c->bytes;
    }
    if (c->kind != OP_SENDRECV && c->kind != OP_SCATTER && ONE_IN(p, rank, 3)) {
        *from = *to;
        from->off += c->kind == OP_GATHER ? (size_t)team->rank[rank] * c->bytes : 0;
    }
}

/* Poison where the call writes, and other bytes to send. */
void prepare(struct planner *p, int rank, const struct draft *d)
{
    const struct call *c = call_of(p, d);
    const struct place *from = &d->from[rank], *to = &d->to[rank];
    if (ONE_IN(p, rank, 2))
        fill(p, rank, any_stream(p, rank), *from, sent_bytes(p->plan, c), SOURCE_NOISE);
    if (from->buffer == to->buffer || !ONE_IN(p, rank, 2))
        return;
    const int stream = any_stream(p, rank);
    need(p, rank, stream, NULL, to->buffer, true);
    struct op *op = put_down(p, OP_SET, rank, stream);
    op->to = *to;
    op->value = 0xa5;
    op->bytes = c->kind == OP_GATHER ? c->bytes * (size_t)p->plan->team[c->comm].size : c->bytes;
    issued(p, rank, stream, -1, to->buffer);
}

/* Small integers, of which GEMMs make exact sums. After prepare() of all calls of a group: they may send from one
 * buffer. */
void prepare_matrix(struct planner *p, int rank, const struct draft *d)
{
    if (d->sent)
        fill(p, rank, any_stream(p, rank), d->from[rank], sent_bytes(p->plan, call_of(p, d)), d->sent);
}

void put_call(struct planner *p, int rank, const struct draft *d)
{
    struct call *c = call_of(p, d);
    struct op *op = put_down(p, c->kind, rank, d->stream[rank]);
    op->call = d->number;
    op->from = d->from[rank];
    op->to = d->to[rank];
    op->bytes = c->bytes;
    if (!op->thrown)
        c->op[rank] = (int)(op - p->plan->ops);
}

static bool one_comm(struct planner *p, const struct draft *d, int n)
{
    for (int i = 1; i < n; i++)
        if (call_of(p, &d[i])->comm != call_of(p, &d[0])->comm)
            return false;
    return true;
}

/* What the i-th call of a group comes after, beside what its own stream brings: the communicator's earlier calls, and
 * the streams of the whole group. The latter only where all is on one communicator: which one is launched first is not
 * promised. */
static struct seen before(struct planner *p, int rank, const struct draft *d, int n, int i)
{
    const struct known *known = &p->known[rank];
    struct seen all = {{0}};
    if (has(p, KIND_order))
        all = known->seen[COMM + call_of(p, &d[i])->comm];
    for (int j = 0; j < n; j++)
        if (j == i || one_comm(p, d, n))
            seen_join(&all, &known->seen[d[j].stream[rank]]);
    return all;
}

void make_edges(struct planner *p, int rank, const struct draft *d, int n)
{
    for (int i = 0; i < n; i++) {
        const int stream = d[i].stream[rank];
        need_all(p, rank, stream, &p->known[rank].graphs[call_of(p, &d[i])->comm]);
        struct seen also = before(p, rank, d, n, i);
        need(p, rank, stream, &also, d[i].from[rank].buffer, false);
        also = before(p, rank, d, n, i);
        need(p, rank, stream, &also, d[i].to[rank].buffer, true);
    }
}

/* The calls are made: what is known of each stream and communicator afterwards. */
void note_calls(struct planner *p, int rank, const struct draft *d, int n)
{
    struct known *known = &p->known[rank];
    struct seen all[MOST_GROUP];
    for (int i = 0; i < n; i++)
        begin(p, rank, d[i].stream[rank]);
    for (int i = 0; i < n; i++)
        all[i] = before(p, rank, d, n, i);
    for (int i = 0; i < n; i++) {
        const int stream = d[i].stream[rank], to = d[i].to[rank].buffer;
        uses(p, rank, stream, d[i].from[rank].buffer, to);
        known->use[to].k = d[i].k;
        known->use[to].columns = d[i].columns;
        known->use[to].stream = stream;
        known->sent = d[i].from[rank].buffer;
        known->received = to;
    }
    for (int i = 0; i < n; i++) {
        struct seen *of_stream = &known->seen[d[i].stream[rank]],
                    *of_comm = &known->seen[COMM + call_of(p, &d[i])->comm];
        seen_join(of_stream, &all[i]);
        for (int j = 0; j < n && one_comm(p, d, n); j++)
            of_stream->of[d[j].stream[rank]] = known->issued[d[j].stream[rank]];
        /* Of several communicators, the number of a call does not say which calls of the stream it comes after. */
        seen_join(of_comm, one_comm(p, d, n) ? of_stream : &all[i]);
    }
}

static int own_stream(const struct planner *p, int rank, const struct draft *d, int n)
{
    for (int i = 0; i < n; i++)
        if (d[i].stream[rank] < 2 && p->plan->two_threads)
            return d[i].stream[rank];
    return d[0].stream[rank];
}

void by_one_thread(struct planner *p, struct draft *d, int n)
{
    for (int r = 0; r < p->plan->nranks && p->plan->two_threads; r++) {
        const int own = own_stream(p, r, d, n);
        for (int i = 0; i < n; i++)
            if (d[i].stream[r] < 2)
                d[i].stream[r] = own;
    }
}

void put_calls(struct planner *p, const struct draft *d, int n, bool grouped)
{
    const int nranks = p->plan->nranks;
    for (int r = 0; r < nranks && grouped; r++) {
        one_thread_begin(p, r, own_stream(p, r, d, n));
        put_down(p, OP_GROUP_START, r, -1);
    }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < nranks; r++) {
            const bool moment = i == 0 && r == p->plan->victim;
            if (moment)
                fate_moment(p, BEFORE_CALL);
            put_call(p, r, &d[i]);
            if (moment)
                fate_moment(p, AFTER_CALL);
        }
    for (int r = 0; r < nranks && grouped; r++) {
        put_down(p, OP_GROUP_END, r, -1);
        one_thread_end(p, r);
    }
}

void draw_parts(struct planner *p, struct draft *d, int n)
{
    for (int r = 0; r < p->plan->nranks; r++) {
        int order[DATA];
        for (int i = 0; i < DATA; i++) {
            const int at = (int)draw(p, r, (uint64_t)i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        for (int i = 0; i < n; i++)
            place_call(p, r, &d[i], i, order);
    }
}

bool adds_up(struct planner *p, const struct draft *d)
{
    for (int r = 0; r < p->plan->nranks; r++)
        if (is_sum(call_of(p, d)) && d->from[r].buffer == d->to[r].buffer)
            return true;
    return false;
}

static bool alike(const struct plan *plan, const struct draft *d, int n)
{
    const enum op_kind kind = plan->calls[d[0].number].kind;
    for (int i = 1; i < n; i++)
        if (plan->calls[d[i].number].kind != kind)
            return false;
    return kind == OP_GATHER || kind == OP_SCATTER || kind == OP_REDUCE;
}

void behind_call(struct planner *p, int rank, const struct draft *d)
{
    const int to = d->to[rank].buffer;
    if (ONE_IN(p, rank, 4))
        order_step(p, rank);
    if (!ONE_IN(p, rank, 3))
        multiply(p, rank, to);
    if (ONE_IN(p, rank, 5) && d->from[rank].buffer != to)
        fill(p, rank, d->stream[rank], d->from[rank], call_of(p, d)->bytes, SOURCE_NOISE);
    if (ONE_IN(p, rank, 6))
        look(p, rank, to);
}

void calls_step(struct planner *p)
{
    struct draft d[MOST_GROUP];
    const int kind = (int)uniform(p, 10), wanted = kind == 0 ? 3 : kind < 3 ? 2 : 1;
    const int n = has(p, KIND_groups) ? wanted : 1, comm = (int)uniform(p, (uint64_t)p->plan->ncomms);
    const bool several = uniform(p, 3) == 0;
    for (int i = 0; i < n; i++)
        draw_call(p, &d[i], several ? (int)uniform(p, (uint64_t)p->plan->ncomms) : comm);
    draw_parts(p, d, n);
    by_one_thread(p, d, n);
    for (int i = 0; i < n; i++)
        call_of(p, &d[i])->alone = alike(p->plan, d, n);
    for (int r = 0; r < p->plan->nranks; r++)
        for (int i = 0; i < n; i++)
            prepare(p, r, &d[i]);
    for (int r = 0; r < p->plan->nranks; r++)
        for (int i = 0; i < n; i++)
            prepare_matrix(p, r, &d[i]);
    for (int r = 0; r < p->plan->nranks; r++)
        make_edges(p, r, d, n);
    put_calls(p, d, n, n > 1);
    for (int r = 0; r < p->plan->nranks; r++) {
        note_calls(p, r, d, n);
        for (int i = 0; i < n; i++)
            behind_call(p, r, &d[i]);
    }
}
