/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of 8-bit floats. Their matrices are gathered as bytes; factors by row are given, or gathered by a small call of
 * their own before the large one, behind it, or in a group with it. A program has a few shapes of them, which come
 * again and again with the same buffers, mostly on the same streams. Products are multiples of a quarter, and factors
 * powers of two, so fp32 is exact. */
#include "planner.h"

enum { SITES = 3, X_FACTORS = 1024 /* bytes: W's are before them */ };
enum how { GIVEN, BEFORE, BEHIND, TOGETHER, HOWS };

struct site {
    int comm, members;
    struct gemm gemm; /* but for `factors` */
    int64_t columns;  /* of X, on each rank */
    enum how how;
    int send, recv, factors, out; /* buffers */
    bool in_place;
};

static uint64_t site_hash(const struct planner *p, int site, uint64_t what, uint64_t n)
{
    return hash64(hash64(p->plan->seed, 800 + (uint64_t)site), what) % n;
}

/* Of X, all of it. */
static int64_t columns_of(const struct site *s)
{
    return s->columns * s->members;
}

static bool fits(const struct plan *plan, const struct site *s)
{
    const int64_t n = columns_of(s);
    return (size_t)(s->gemm.inner * n) <= plan->size[s->recv] && (size_t)n * 4 <= plan->size[s->factors] &&
           (size_t)(s->gemm.m * s->gemm.n) * 4 <= plan->size[s->out];
}

/* cuBLAS wants what lies along memory to be a multiple of 16 bytes: the inner dimension, and C's rows. */
static void shape(const struct planner *p, int number, struct site *s)
{
    static const int64_t inner[] = {16, 32, 48, 128};
    struct gemm *g = &s->gemm;
    const int64_t other = 1 + (int64_t)site_hash(p, number, 1, g->x_is_b ? 8 : 32);
    s->columns = 1 + (int64_t)site_hash(p, number, 2, g->x_is_b ? 48 : 12);
    s->columns *= g->x_is_b ? 1 : 4;
    g->inner = inner[site_hash(p, number, 3, sizeof inner / sizeof *inner)];
    g->m = g->x_is_b ? other * 4 : columns_of(s);
    g->n = g->x_is_b ? columns_of(s) : other;
}

/* False: it does not fit. */
static bool site_of(const struct planner *p, int number, struct site *s)
{
    *s = (struct site){.comm = (int)site_hash(p, number, 0, (uint64_t)p->plan->ncomms)};
    s->members = p->plan->team[s->comm].size;
    s->gemm.narrow = NO_FACTORS + (unsigned)site_hash(p, number, 4, 3);
    s->gemm.x_is_b = site_hash(p, number, 5, 2);
    s->gemm.x_e5m2 = site_hash(p, number, 6, 3) == 0;
    s->gemm.w_e5m2 = !s->gemm.x_e5m2 && site_hash(p, number, 7, 3) == 0; /* not both */
    s->how = s->gemm.narrow == BY_ROW ? (enum how)site_hash(p, number, 8, HOWS) : GIVEN;
    s->send = (int)site_hash(p, number, 9, DATA);
    s->recv = (s->send + 1) % DATA;
    s->factors = (s->send + 2) % DATA;
    s->out = DATA + number % OUTS;
    s->in_place = site_hash(p, number, 10, 4) == 0;
    shape(p, number, s);
    return fits(p->plan, s);
}

static int own_stream(struct planner *p, int rank, int number)
{
    const uint64_t usual = hash64(hash64(p->plan->seed, 900 + (uint64_t)number), (uint64_t)rank);
    return ONE_IN(p, rank, 10) ? any_stream(p, rank) : (int)(usual % (uint64_t)p->plan->nstreams);
}

static struct draft call_draft(struct planner *p, const struct site *s, ncclDataType_t type, size_t elem, size_t count)
{
    struct draft d = {.number = new_call(p->plan), .elem = elem};
    struct call *c = call_of(p, &d);
    c->kind = OP_GATHER;
    c->comm = s->comm;
    c->type = type;
    c->count = count;
    c->bytes = count * elem;
    c->alone = true;
    return d;
}

static struct draft of_matrix(struct planner *p, const struct site *s, const int *streams)
{
    const size_t bytes = (size_t)(s->gemm.inner * s->columns);
    struct draft d = call_draft(p, s, ncclUint8, 1, bytes);
    for (int r = 0; r < p->plan->nranks; r++) {
        d.stream[r] = streams[r];
        d.to[r] = (struct place){s->recv, 0};
        d.from[r] = (struct place){s->send, 0};
        if (s->in_place)
            d.from[r] = (struct place){s->recv, (size_t)p->plan->team[s->comm].rank[r] * bytes};
    }
    return d;
}

static struct draft of_factors(struct planner *p, const struct site *s, const int *streams)
{
    struct draft d = call_draft(p, s, ncclFloat32, 4, (size_t)s->columns);
    for (int r = 0; r < p->plan->nranks; r++) {
        d.stream[r] = ONE_IN(p, r, 5) ? any_stream(p, r) : streams[r];
        d.from[r] = (struct place){FACTORS, X_FACTORS};
        d.to[r] = (struct place){s->factors, 0};
    }
    return d;
}

static void gather(struct planner *p, const struct draft *d, int n)
{
    for (int r = 0; r < p->plan->nranks; r++)
        make_edges(p, r, d, n);
    put_calls(p, d, n, n > 1);
    for (int r = 0; r < p->plan->nranks; r++)
        note_calls(p, r, d, n);
}

static void gather_all(struct planner *p, const struct site *s, const int *streams)
{
    struct draft d[2] = {of_matrix(p, s, streams)};
    if (s->how != GIVEN)
        d[1] = of_factors(p, s, streams);
    if (s->how == TOGETHER && has(p, KIND_groups)) {
        by_one_thread(p, d, 2);
        gather(p, d, 2);
        return;
    }
    if (s->how == BEFORE)
        gather(p, &d[1], 1);
    gather(p, &d[0], 1);
    if (s->how == BEHIND || s->how == TOGETHER)
        gather(p, &d[1], 1);
}

static void reads(struct planner *p, int rank, int stream, int buffer)
{
    p->known[rank].use[buffer].read.of[stream] = p->known[rank].issued[stream];
}

static void multiply_narrow(struct planner *p, int rank, int stream, const struct site *s)
{
    const struct place factors = s->how == GIVEN ? (struct place){FACTORS, X_FACTORS} : (struct place){s->factors, 0};
    const int from[] = {s->recv, NARROW, FACTORS, factors.buffer};
    for (unsigned i = 0; i < sizeof from / sizeof *from; i++)
        need(p, rank, stream, NULL, from[i], false);
    need(p, rank, stream, NULL, s->out, true);
    struct gemm g = s->gemm;
    g.factors = factors;
    scratch_before(p, rank, stream, s->recv, s->out, &g);
    struct op *op = put_down(p, OP_GEMM, rank, stream);
    op->gemm = g;
    op->from.buffer = s->recv;
    op->to.buffer = s->out;
    issued(p, rank, stream, s->recv, s->out);
    for (unsigned i = 1; i < sizeof from / sizeof *from; i++)
        reads(p, rank, stream, from[i]);
    scratch_behind(p, rank, stream, &g);
}

static void poison(struct planner *p, int rank, int stream, int buffer)
{
    need(p, rank, stream, NULL, buffer, true);
    struct op *op = put_down(p, OP_SET, rank, stream);
    op->to.buffer = buffer;
    op->bytes = p->plan->size[buffer];
    op->value = 0x7f; /* no number in both types */
    issued(p, rank, stream, -1, buffer);
}

static void afterwards(struct planner *p, int rank, int stream, const struct site *s)
{
    if (ONE_IN(p, rank, 10))
        order_step(p, rank);
    multiply_narrow(p, rank, ONE_IN(p, rank, 5) ? any_stream(p, rank) : stream, s);
    if (ONE_IN(p, rank, 6)) /* the same again, which is not the first that reads it */
        multiply_narrow(p, rank, stream, s);
    if (ONE_IN(p, rank, 3))
        look(p, rank, s->out);
    if (ONE_IN(p, rank, 6))
        look(p, rank, s->recv);
}

void narrow_step(struct planner *p)
{
    const int number = (int)uniform(p, SITES);
    struct site s;
    int streams[RANKS];
    if (!site_of(p, number, &s))
        return;
    for (int r = 0; r < p->plan->nranks; r++) {
        const size_t bytes = (size_t)(s.gemm.inner * s.columns);
        streams[r] = own_stream(p, r, number);
        if (ONE_IN(p, r, 2))
            poison(p, r, streams[r], s.recv);
        if (s.in_place)
            fill(p, r, streams[r], (struct place){s.recv, (size_t)p->plan->team[s.comm].rank[r] * bytes}, bytes,
                 SOURCE_NARROW);
        else
            fill(p, r, ONE_IN(p, r, 3) ? any_stream(p, r) : streams[r], (struct place){s.send, 0}, bytes,
                 SOURCE_NARROW);
    }
    gather_all(p, &s, streams);
    for (int r = 0; r < p->plan->nranks; r++)
        afterwards(p, r, streams[r], &s);
}
