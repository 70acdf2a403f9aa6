/* SPDX-License-Identifier: Apache-2.0 */
#include "planner.h"

#include <string.h>

uint64_t uniform(struct planner *p, uint64_t n)
{
    return hash64(p->key, p->uniform_n++) % n;
}

uint64_t draw(struct planner *p, int rank, uint64_t n)
{
    return hash64(hash64(p->key, 1000 + (uint64_t)rank), p->own_n[rank]++) % n;
}

uint64_t extra(struct planner *p, int rank, uint64_t n)
{
    return hash64(hash64(p->key, 2000 + (uint64_t)rank), p->extra_n[rank]++) % n;
}

int any_stream(struct planner *p, int rank)
{
    return (int)draw(p, rank, (uint64_t)p->plan->nstreams);
}

bool has(const struct planner *p, enum kind kind)
{
    return p->plan->kinds >> kind & 1;
}

struct op *put_down(struct planner *p, enum op_kind kind, int rank, int stream)
{
    struct plan *plan = p->plan;
    if (plan->nops == plan->room) {
        plan->room = plan->room * 2 + 256;
        plan->ops = realloc(plan->ops, (size_t)plan->room * sizeof *plan->ops);
        CHECK(plan->ops, "no memory");
    }
    struct op *op = &plan->ops[plan->nops++];
    *op = (struct op){.kind = kind, .step = p->step, .rank = rank, .stream = stream, .call = -1};
    op->captured = p->captured != 0;
    op->thrown = p->captured == 2;
    choose_way(p, op);
    return op;
}

size_t sent_bytes(const struct plan *plan, const struct call *c)
{
    return c->kind == OP_SCATTER ? c->bytes * (size_t)plan->team[c->comm].size : c->bytes;
}

bool is_sum(const struct call *c)
{
    return c->kind == OP_REDUCE || c->kind == OP_SCATTER;
}

bool is_float(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16;
}

ncclDataType_t plan_type(const struct plan *plan)
{
    return plan->type == API_S ? ncclFloat32 : ncclBfloat16;
}

size_t gemm_c_bytes(const struct gemm *g)
{
    return (size_t)(g->m * g->n) * (g->c_bf16 ? 2 : 4);
}

int team_member(const struct plan *plan, int comm, int rank, int i)
{
    const struct team *team = &plan->team[comm];
    for (int r = 0; r < plan->nranks; r++)
        if (team->colour[r] == team->colour[rank] && team->rank[r] == i)
            return r;
    DIE(2, "no rank %d in communicator %d", i, comm);
}

static void begin_step(struct planner *p, int step)
{
    p->step = step;
    p->key = hash64(hash64(p->plan->seed, 77), (uint64_t)step);
    p->uniform_n = 0;
    memset(p->own_n, 0, sizeof p->own_n);
    memset(p->extra_n, 0, sizeof p->extra_n);
}

/* The second communicator: the halves of four ranks, or all, in their order or the other way round. */
static void draw_teams(struct planner *p)
{
    struct plan *plan = p->plan;
    const int n = plan->nranks;
    const bool halves = n == 4 && uniform(p, 2), reversed = uniform(p, 2);
    plan->ncomms = 1 + (int)uniform(p, 2);
    plan->team[0].size = n;
    plan->team[1].size = halves ? n / 2 : n;
    for (int r = 0; r < n; r++) {
        const int size = plan->team[1].size;
        plan->team[0].rank[r] = r;
        plan->team[1].colour[r] = r / size;
        plan->team[1].rank[r] = reversed ? size - 1 - r % size : r % size;
    }
}

static void draw_fate(struct planner *p)
{
    struct plan *plan = p->plan;
    const uint64_t way = uniform(p, 12);
    plan->victim = (int)uniform(p, (uint64_t)plan->nranks);
    plan->fate_step = 1 + (int)uniform(p, (uint64_t)plan->steps);
    plan->fate_op = -1;
    if (plan->threads || plan->two_threads || plan->conditional)
        return;
    if (way < 3 && has(p, KIND_kill))
        plan->fate = DIES;
    if (way == 3 && has(p, KIND_freeze))
        plan->fate = FREEZES;
}

static void draw_program(struct planner *p)
{
    static const size_t shards[] = {2048, 16384, 65536, 200000};
    static const int ranks[] = {2, 2, 2, 3, 4};
    struct plan *plan = p->plan;
    begin_step(p, 0);
    plan->nranks = ranks[uniform(p, sizeof ranks / sizeof *ranks)];
    plan->threads = uniform(p, 5) < 2 && has(p, KIND_threads);
    plan->nstreams = uniform(p, 5) ? 2 + (int)uniform(p, STREAMS - 1) : 1;
    plan->type = uniform(p, 2) ? API_S : API_EX_BF16;
    plan->elem = api_elem(plan->type);
    plan->shard = shards[uniform(p, sizeof shards / sizeof *shards)];
    plan->steps = 15 + (int)uniform(p, 40);
    for (int b = 0; b < BUFFERS; b++)
        plan->size[b] = b == WEIGHT ? 16384 : b > WEIGHT ? 4096 : plan->shard * (size_t)plan->nranks + 4096;
    draw_ways(p);
    draw_teams(p);
    draw_fate(p);
    for (int r = 0; r < plan->nranks; r++)
        for (int b = 0; b < BUFFERS; b++)
            fill(p, r, any_stream(p, r), (struct place){b, 0}, plan->size[b],
                 b == WEIGHT    ? SOURCE_INTEGERS
                 : b == NARROW  ? SOURCE_NARROW
                 : b == FACTORS ? SOURCE_FACTORS
                                : SOURCE_NOISE);
}

static bool on_way(struct planner *p, enum op_kind kind, int rank)
{
    const bool in_stream = ONE_IN(p, rank, 2) && !p->captured;
    const int stream = in_stream ? any_stream(p, rank) : -1;
    put_down(p, kind, rank, stream)->value = 5 + (int)draw(p, rank, 120);
    if (in_stream)
        issued(p, rank, stream, -1, -1);
    return true;
}

void fate_moment(struct planner *p, enum moment moment)
{
    struct plan *plan = p->plan;
    if (plan->fate == LIVES || plan->fate_op >= 0 || p->step < plan->fate_step)
        return;
    const uint64_t when = hash64(plan->seed, 55) % MOMENTS;
    if (moment != (enum moment)when && p->step == plan->fate_step)
        return;
    on_way(p, plan->fate == DIES ? OP_KILL : OP_FREEZE, plan->victim);
    plan->fate_op = plan->nops - 1;
}

static void one_step(struct planner *p)
{
    /* By no draw, so that other kinds' programs are what they are without this one. */
    if (has(p, KIND_fp8) && hash64(p->key, 8) % 6 == 0) {
        fate_moment(p, AT_START);
        narrow_step(p);
        return;
    }
    if ((has(p, KIND_scatter) || has(p, KIND_sums)) && uniform(p, 4) == 0) {
        fate_moment(p, AT_START);
        product_step(p);
        return;
    }
    const uint64_t way = uniform(p, 40);
    fate_moment(p, AT_START);
    if (way == 0)
        for (int r = 0; r < p->plan->nranks; r++)
            put_down(p, OP_REST, r, -1)->value = 40; /* time to map peers' memory, for a library that does so */
    else if (way < 18)
        calls_step(p);
    else if (way < 22)
        capture_step(p);
    else
        for (int r = 0; r < p->plan->nranks; r++)
            for (int n = (int)draw(p, r, 3); n > 0; n--)
                local_step(p, r);
    for (int r = 0; r < p->plan->nranks; r++)
        if (ONE_IN(p, r, 40) && has(p, KIND_stop) && !p->plan->threads)
            on_way(p, OP_STOP, r);
}

static bool left_out(const struct plan_options *o, int step)
{
    for (const char *at = o->without; at && *at;) {
        char *end;
        if (strtol(at, &end, 10) == step)
            return true;
        at = *end ? end + 1 : end;
    }
    return false;
}

static void last_looks(struct planner *p)
{
    begin_step(p, 1000);
    for (int r = 0; r < p->plan->nranks; r++) {
        for (int b = 0; b < BUFFERS; b++)
            look(p, r, b);
        for (int s = 0; s < p->plan->nstreams; s++)
            sync_stream(p, r, s);
    }
}

void plan_make(struct plan *plan, const struct plan_options *o)
{
    struct planner p = {.plan = plan};
    *plan = (struct plan){.seed = o->seed, .kinds = o->kinds};
    draw_program(&p);
    for (int step = 1; step <= plan->steps && step <= o->steps; step++) {
        begin_step(&p, step);
        if (!left_out(o, step))
            one_step(&p);
    }
    last_looks(&p);
    if (plan->fate_op < 0)
        plan->fate = LIVES;
}

void plan_free(struct plan *plan)
{
    for (int i = 0; i < plan->nops; i++) {
        free(plan->ops[i].expected);
        free(plan->ops[i].any);
    }
    free(plan->ops);
    free(plan->calls);
}
