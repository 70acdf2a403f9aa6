/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs whose output is summed over the ranks, and scattered or not; also through a copy of it. A program has a few
 * shapes of them, which come again and again with the same buffers on the same streams, so that a library may learn
 * what comes behind a GEMM; now and then it is something else. C holds small integers whatever is done to it, so sums
 * are exact. */
#include "planner.h"

enum { SITES = 3, MOST_COLUMNS = 24, MOST_INNER_BF16 = 16 /* sums of four ranks stay below 2^8 then */ };

struct site {
    enum op_kind kind; /* OP_SCATTER, OP_REDUCE */
    int comm, members;
    ncclDataType_t type; /* of C */
    ncclRedOp_t redop;
    size_t elem;
    int64_t m, k, n;  /* n: columns of C; of a reduce-scatter all ranks have as many of them */
    int x, out, recv; /* buffers */
    /* The result is in recv; where C is; both in recv, where C is copied before. */
    enum { APART, IN_PLACE, COPIED } place;
};

static uint64_t site_hash(const struct planner *p, int site, uint64_t what, uint64_t n)
{
    return hash64(hash64(p->plan->seed, 600 + (uint64_t)site), what) % n;
}

static size_t c_bytes(const struct site *s)
{
    return (size_t)(s->m * s->n) * s->elem;
}

static bool fits(const struct plan *plan, const struct site *s)
{
    return (size_t)(s->m * s->k) * plan->elem <= plan->size[WEIGHT] &&
           (size_t)(s->k * s->n) * plan->elem <= plan->size[s->x] && c_bytes(s) <= plan->size[s->out];
}

static void draw_type(const struct planner *p, int number, struct site *s)
{
    const bool bf16 = p->plan->type == API_EX_BF16 && site_hash(p, number, 9, 2);
    s->type = bf16 ? ncclBfloat16 : ncclFloat32;
    s->elem = bf16 ? 2 : 4;
    s->k = bf16 && s->k > MOST_INNER_BF16 ? MOST_INNER_BF16 : s->k;
    s->redop = site_hash(p, number, 10, 4) ? ncclSum : exact_average(p, s->comm);
}

/* All-reduces are in place more often than not, and what they sum need not divide by the ranks. */
static void draw_kind(const struct planner *p, int number, struct site *s)
{
    const int64_t columns = 1 + (int64_t)site_hash(p, number, 3, MOST_COLUMNS);
    const uint64_t way = site_hash(p, number, 6, 4);
    s->kind = !has(p, KIND_sums) || (has(p, KIND_scatter) && site_hash(p, number, 7, 2)) ? OP_SCATTER : OP_REDUCE;
    s->n = columns * s->members;
    s->place = way == 0 ? IN_PLACE : way == 1 && site_hash(p, number, 8, 2) ? COPIED : APART;
    if (s->kind == OP_SCATTER)
        return;
    if (site_hash(p, number, 13, 3) == 0)
        s->n += (int64_t)site_hash(p, number, 11, (uint64_t)s->members);
    if (site_hash(p, number, 12, 8) == 0)
        s->n = s->m = 1; /* one element */
    s->place = way < 2 ? IN_PLACE : way == 2 ? COPIED : APART;
}

/* False: not even a column of each rank fits. */
static bool site_of(const struct planner *p, int number, struct site *s)
{
    static const int64_t inner[] = {4, 8, 16, 33};
    const struct plan *plan = p->plan;
    *s = (struct site){.comm = (int)site_hash(p, number, 0, (uint64_t)plan->ncomms)};
    s->members = plan->team[s->comm].size;
    s->m = 1 + (int64_t)site_hash(p, number, 1, 16);
    s->k = inner[site_hash(p, number, 2, sizeof inner / sizeof *inner)];
    s->x = (int)site_hash(p, number, 4, DATA);
    s->recv = (s->x + 1 + (int)site_hash(p, number, 5, DATA - 1)) % DATA;
    s->out = DATA + number % OUTS;
    draw_type(p, number, s);
    draw_kind(p, number, s);
    while (s->n > s->members && !fits(plan, s))
        s->n -= s->members;
    return fits(plan, s);
}

static int own_stream(struct planner *p, int rank, int number)
{
    const uint64_t usual = hash64(hash64(p->plan->seed, 700 + (uint64_t)number), (uint64_t)rank);
    return ONE_IN(p, rank, 10) ? any_stream(p, rank) : (int)(usual % (uint64_t)p->plan->nstreams);
}

/* Columns [first, first + n) of C. */
static void gemm_columns(struct planner *p, int rank, int stream, const struct site *s, int64_t first, int64_t n)
{
    need(p, rank, stream, NULL, s->x, false);
    need(p, rank, stream, NULL, WEIGHT, false);
    need(p, rank, stream, NULL, s->out, true);
    struct gemm g = {.x_is_b = true, .c_bf16 = s->type == ncclBfloat16, .m = s->m, .n = n, .inner = s->k};
    scratch_before(p, rank, stream, s->x, s->out, &g);
    struct op *op = put_down(p, OP_GEMM, rank, stream);
    op->gemm = g;
    op->from = (struct place){s->x, (size_t)(first * s->k) * p->plan->elem};
    op->to = (struct place){s->out, (size_t)(first * s->m) * s->elem};
    issued(p, rank, stream, s->x, s->out);
    p->known[rank].use[WEIGHT].read.of[stream] = p->known[rank].issued[stream];
    scratch_behind(p, rank, stream, &g);
}

static void set(struct planner *p, int rank, int stream, struct place to, size_t bytes, int value)
{
    need(p, rank, stream, NULL, to.buffer, true);
    struct op *op = put_down(p, OP_SET, rank, stream);
    op->to = to;
    op->bytes = bytes;
    op->value = value;
    issued(p, rank, stream, -1, to.buffer);
}

/* Zeros in a part of C, or of its copy. */
static void zero(struct planner *p, int rank, int stream, const struct site *s, int buffer)
{
    const size_t all = (size_t)(s->m * s->n), first = draw(p, rank, all);
    set(p, rank, stream, (struct place){buffer, first * s->elem}, (1 + draw(p, rank, all - first)) * s->elem, 0);
}

/* The GEMM may wait on its stream until the host has made the call. */
static void make(struct planner *p, int rank, int stream, const struct site *s)
{
    const int64_t n = s->n, half = n / 2;
    fill(p, rank, ONE_IN(p, rank, 3) ? any_stream(p, rank) : stream, (struct place){s->x, 0},
         (size_t)(s->k * n) * p->plan->elem, SOURCE_INTEGERS);
    if (ONE_IN(p, rank, 2) && s->place != IN_PLACE)
        set(p, rank, stream, (struct place){s->recv, 0}, c_bytes(s), 0xa5);
    if (ONE_IN(p, rank, 3))
        hold_stream(p, rank, stream);
    if (!ONE_IN(p, rank, 12) || half == 0) {
        gemm_columns(p, rank, stream, s, 0, n);
        return;
    }
    gemm_columns(p, rank, stream, s, half, n - half);
    gemm_columns(p, rank, stream, s, 0, half);
}

/* Mostly nothing. */
static void between(struct planner *p, int rank, int stream, const struct site *s)
{
    switch (draw(p, rank, 20)) {
    case 0:
        zero(p, rank, stream, s, s->out);
        return;
    case 1:
        zero(p, rank, any_stream(p, rank), s, s->out);
        return;
    case 2:
        gemm_columns(p, rank, stream, s, 0, s->n);
        return;
    case 3:
        gemm_columns(p, rank, any_stream(p, rank), s, s->n - 1, 1);
        return;
    case 4:
        order_step(p, rank);
        return;
    case 5:
        look(p, rank, s->out);
        return;
    case 6:
        fill(p, rank, stream, (struct place){s->x, 0}, (size_t)(s->k * s->n) * p->plan->elem, SOURCE_NOISE);
        return;
    case 7:
        look(p, rank, s->recv);
        return;
    default:
        return;
    }
}

/* The whole of C, mostly by one copy on the GEMM's stream. */
static void copy(struct planner *p, int rank, int stream, const struct site *s)
{
    const size_t all = c_bytes(s), parts[2] = {ONE_IN(p, rank, 10) ? all / 2 : 0, all};
    const int by = ONE_IN(p, rank, 10) ? any_stream(p, rank) : stream;
    for (size_t i = 0, at = 0; i < 2; at = parts[i++]) {
        if (parts[i] == at)
            continue;
        need(p, rank, by, NULL, s->out, false);
        need(p, rank, by, NULL, s->recv, true);
        struct op *op = put_down(p, OP_COPY, rank, by);
        op->from = (struct place){s->out, at};
        op->to = (struct place){s->recv, at};
        op->bytes = parts[i] - at;
        issued(p, rank, by, s->out, s->recv);
    }
    if (ONE_IN(p, rank, 10))
        zero(p, rank, stream, s, s->recv);
    if (ONE_IN(p, rank, 10))
        zero(p, rank, stream, s, s->out);
}

static void afterwards(struct planner *p, int rank, int stream, const struct site *s)
{
    const struct place c = {s->out, 0};
    if (ONE_IN(p, rank, 3))
        look(p, rank, s->place == IN_PLACE ? s->out : s->recv);
    if (ONE_IN(p, rank, 6))
        look(p, rank, s->out);
    if (ONE_IN(p, rank, 4))
        set(p, rank, stream, c, c_bytes(s), 0xff);
    if (ONE_IN(p, rank, 4))
        order_step(p, rank);
}

/* The whole of C, or less than half of it. */
static void draw_sum(struct planner *p, struct draft *d, const struct site *s, const int *streams)
{
    *d = (struct draft){.number = new_call(p->plan), .elem = s->elem};
    struct call *c = call_of(p, d);
    const size_t whole = (size_t)(s->m * s->n) / (s->kind == OP_SCATTER ? (size_t)s->members : 1);
    c->kind = s->kind;
    c->comm = s->comm;
    c->type = s->type;
    c->redop = s->redop;
    c->count = uniform(p, 12) || whole < 2 ? whole : 1 + uniform(p, whole / 2);
    c->bytes = c->count * s->elem;
    c->alone = true;
    for (int r = 0; r < p->plan->nranks; r++) {
        d->stream[r] = ONE_IN(p, r, 5) ? any_stream(p, r) : streams[r];
        d->from[r] = (struct place){s->place == COPIED ? s->recv : s->out, 0};
        d->to[r] = (struct place){s->place == IN_PLACE ? s->out : s->recv, 0};
        if (s->place != APART && s->kind == OP_SCATTER)
            d->to[r].off = (size_t)p->plan->team[s->comm].rank[r] * c->bytes;
    }
}

static void one_product(struct planner *p, int number, const struct site *s)
{
    struct draft d;
    int streams[RANKS];
    for (int r = 0; r < p->plan->nranks; r++) {
        streams[r] = own_stream(p, r, number);
        make(p, r, streams[r], s);
        between(p, r, streams[r], s);
        if (s->place == COPIED)
            copy(p, r, streams[r], s);
    }
    if (uniform(p, 10) == 0)
        return; /* what was expected does not come */
    draw_sum(p, &d, s, streams);
    for (int r = 0; r < p->plan->nranks; r++)
        make_edges(p, r, &d, 1);
    put_calls(p, &d, 1, uniform(p, 8) == 0 && has(p, KIND_groups));
    for (int r = 0; r < p->plan->nranks; r++) {
        note_calls(p, r, &d, 1);
        afterwards(p, r, streams[r], s);
    }
}

void product_step(struct planner *p)
{
    const int number = (int)uniform(p, SITES);
    struct site s;
    if (site_of(p, number, &s))
        for (int n = 1 + (int)uniform(p, 3); n > 0; n--)
            one_product(p, number, &s);
}
