/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs whose output is reduced and scattered. A program has a few shapes of them, which come again and again with the
 * same buffers on the same streams, so that a library may learn what comes behind a GEMM; now and then it is something
 * else. C is fp32 and holds small integers whatever is done to it, so sums are exact. */
#include "planner.h"

enum { SITES = 3, MOST_COLUMNS = 24 };

struct site {
    int comm, members;
    int64_t m, k, columns; /* columns: of C, on each rank */
    int x, out, recv;      /* buffers */
    bool in_place;
};

static uint64_t site_hash(const struct planner *p, int site, uint64_t what, uint64_t n)
{
    return hash64(hash64(p->plan->seed, 600 + (uint64_t)site), what) % n;
}

static bool fits(const struct plan *plan, const struct site *s)
{
    const int64_t n = s->columns * s->members;
    return (size_t)(s->m * s->k) * plan->elem <= plan->size[WEIGHT] &&
           (size_t)(s->k * n) * plan->elem <= plan->size[s->x] && (size_t)(s->m * n) * 4 <= plan->size[s->out];
}

/* False: not even a column fits. */
static bool site_of(const struct planner *p, int number, struct site *s)
{
    static const int64_t inner[] = {4, 8, 16, 33};
    const struct plan *plan = p->plan;
    *s = (struct site){.comm = (int)site_hash(p, number, 0, (uint64_t)plan->ncomms)};
    s->members = plan->team[s->comm].size;
    s->m = 1 + (int64_t)site_hash(p, number, 1, 16);
    s->k = inner[site_hash(p, number, 2, sizeof inner / sizeof *inner)];
    s->columns = 1 + (int64_t)site_hash(p, number, 3, MOST_COLUMNS);
    s->x = (int)site_hash(p, number, 4, DATA);
    s->recv = (s->x + 1 + (int)site_hash(p, number, 5, DATA - 1)) % DATA;
    s->out = DATA + number % OUTS;
    s->in_place = site_hash(p, number, 6, 4) == 0;
    while (s->columns > 1 && !fits(plan, s))
        s->columns--;
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
    struct gemm g = {.x_is_b = true, .m = s->m, .n = n, .inner = s->k};
    scratch_before(p, rank, stream, s->x, s->out, &g);
    struct op *op = put_down(p, OP_GEMM, rank, stream);
    op->gemm = g;
    op->from = (struct place){s->x, (size_t)(first * s->k) * p->plan->elem};
    op->to = (struct place){s->out, (size_t)(first * s->m) * 4};
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

/* Zeros in a part of C. */
static void zero(struct planner *p, int rank, int stream, const struct site *s)
{
    const size_t all = (size_t)(s->m * s->columns * s->members), first = draw(p, rank, all);
    set(p, rank, stream, (struct place){s->out, first * 4}, (1 + draw(p, rank, all - first)) * 4, 0);
}

static void make(struct planner *p, int rank, int stream, const struct site *s)
{
    const int64_t n = s->columns * s->members, half = n / 2;
    fill(p, rank, ONE_IN(p, rank, 3) ? any_stream(p, rank) : stream, (struct place){s->x, 0},
         (size_t)(s->k * n) * p->plan->elem, SOURCE_INTEGERS);
    if (ONE_IN(p, rank, 2) && !s->in_place)
        set(p, rank, stream, (struct place){s->recv, 0}, (size_t)(s->m * s->columns) * 4, 0xa5);
    if (!ONE_IN(p, rank, 12)) {
        gemm_columns(p, rank, stream, s, 0, n);
        return;
    }
    gemm_columns(p, rank, stream, s, half, n - half);
    gemm_columns(p, rank, stream, s, 0, half);
}

/* Mostly nothing. */
static void between(struct planner *p, int rank, int stream, const struct site *s)
{
    const int64_t n = s->columns * s->members;
    switch (draw(p, rank, 20)) {
    case 0:
        zero(p, rank, stream, s);
        return;
    case 1:
        zero(p, rank, any_stream(p, rank), s);
        return;
    case 2:
        gemm_columns(p, rank, stream, s, 0, n);
        return;
    case 3:
        gemm_columns(p, rank, any_stream(p, rank), s, n - 1, 1);
        return;
    case 4:
        order_step(p, rank);
        return;
    case 5:
        look(p, rank, s->out);
        return;
    case 6:
        fill(p, rank, stream, (struct place){s->x, 0}, (size_t)(s->k * n) * p->plan->elem, SOURCE_NOISE);
        return;
    case 7:
        look(p, rank, s->recv);
        return;
    default:
        return;
    }
}

static void afterwards(struct planner *p, int rank, int stream, const struct site *s)
{
    const struct place c = {s->out, 0};
    if (ONE_IN(p, rank, 3))
        look(p, rank, s->in_place ? s->out : s->recv);
    if (ONE_IN(p, rank, 6))
        look(p, rank, s->out);
    if (ONE_IN(p, rank, 4))
        set(p, rank, stream, c, (size_t)(s->m * s->columns * s->members) * 4, 0xff);
    if (ONE_IN(p, rank, 4))
        order_step(p, rank);
}

/* The whole of C, or less than half of it. */
static void draw_scatter(struct planner *p, struct draft *d, const struct site *s, const int *streams)
{
    *d = (struct draft){.number = new_call(p->plan), .elem = 4};
    struct call *c = call_of(p, d);
    const size_t whole = (size_t)(s->m * s->columns);
    c->kind = OP_SCATTER;
    c->comm = s->comm;
    c->type = ncclFloat32;
    c->redop = ncclSum;
    c->count = uniform(p, 12) || whole < 2 ? whole : 1 + uniform(p, whole / 2);
    c->bytes = c->count * 4;
    c->alone = true;
    for (int r = 0; r < p->plan->nranks; r++) {
        d->stream[r] = ONE_IN(p, r, 5) ? any_stream(p, r) : streams[r];
        d->from[r] = (struct place){s->out, 0};
        d->to[r] = (struct place){s->recv, 0};
        if (s->in_place)
            d->to[r] = (struct place){s->out, (size_t)p->plan->team[s->comm].rank[r] * c->bytes};
    }
}

void scatter_step(struct planner *p)
{
    const int number = (int)uniform(p, SITES);
    struct site s;
    struct draft d;
    int streams[RANKS];
    if (!site_of(p, number, &s))
        return;
    for (int r = 0; r < p->plan->nranks; r++) {
        streams[r] = own_stream(p, r, number);
        make(p, r, streams[r], &s);
        between(p, r, streams[r], &s);
    }
    if (uniform(p, 10) == 0)
        return; /* what was expected does not come */
    draw_scatter(p, &d, &s, streams);
    for (int r = 0; r < p->plan->nranks; r++)
        make_edges(p, r, &d, 1);
    put_calls(p, &d, 1, uniform(p, 8) == 0 && has(p, KIND_groups));
    for (int r = 0; r < p->plan->nranks; r++) {
        note_calls(p, r, &d, 1);
        afterwards(p, r, streams[r], &s);
    }
}
