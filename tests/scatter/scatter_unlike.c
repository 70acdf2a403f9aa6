/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that do not do alike: another number of GEMMs, none, other streams, late. Their calls are the same, so the
 * result is. */
#include "scatter.h"

#include <string.h>

enum { TURNS = 15, LATE_MS = 1500 };
enum how { WHOLE, HALVES, COPIED, ON_SIDE, CALL_ON_SIDE, LATE_GEMM, LATE_CALL, HELD, HOWS };

/* How the rank makes its part of a turn: known to all, as the others must know what it sends. */
struct unlike {
    enum how (*how)(int rank, int nranks, uint64_t turn);
    int turns;
};

static enum how draw(int rank, uint64_t turn)
{
    const enum how how = (enum how)(hash64(4711 + (uint64_t)rank, turn) % HOWS);
    return how == LATE_GEMM || how == LATE_CALL ? WHOLE : how;
}

static enum how last_halves(int rank, int nranks, uint64_t turn)
{
    (void)turn;
    return rank == nranks - 1 ? HALVES : WHOLE;
}

static enum how first_copies(int rank, int nranks, uint64_t turn)
{
    (void)nranks;
    (void)turn;
    return rank == 0 ? COPIED : WHOLE;
}

static enum how last_copies_then_not(int rank, int nranks, uint64_t turn)
{
    return rank == nranks - 1 && turn % 4 == 3 ? COPIED : WHOLE;
}

static enum how odd_on_side(int rank, int nranks, uint64_t turn)
{
    (void)nranks;
    (void)turn;
    return rank % 2 ? ON_SIDE : WHOLE;
}

static enum how odd_call_on_side(int rank, int nranks, uint64_t turn)
{
    (void)nranks;
    (void)turn;
    return rank % 2 ? CALL_ON_SIDE : WHOLE;
}

static enum how late_gemm(int rank, int nranks, uint64_t turn)
{
    return rank == (int)(turn % (uint64_t)nranks) && turn > 6 && turn < 10 ? LATE_GEMM : WHOLE;
}

static enum how late_call(int rank, int nranks, uint64_t turn)
{
    return rank == (int)(turn % (uint64_t)nranks) && turn > 6 && turn < 10 ? LATE_CALL : WHOLE;
}

static enum how held(int rank, int nranks, uint64_t turn)
{
    return rank == (int)(turn % (uint64_t)nranks) ? HELD : WHOLE;
}

static enum how any(int rank, int nranks, uint64_t turn)
{
    (void)nranks;
    return draw(rank, turn);
}

static void make(struct turn *u, enum how how)
{
    struct site *t = u->t;
    struct world *w = t->w;
    const int half = t->n / 2;
    switch (how) {
    case HALVES:
        site_gemm_part(t, half, half, t->n - half, -1, w->s);
        site_gemm_part(t, 0, 0, half, -1, w->s);
        return;
    case COPIED:
        CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, w->s));
        return;
    case ON_SIDE:
        edge(w, 0, w->s, w->side);
        site_gemm(t, w->side);
        edge(w, 1, w->side, w->s);
        return;
    case LATE_GEMM:
        sleep_ms(LATE_MS);
        break;
    case HELD:
        hold(w->s, 15);
        break;
    default:
        break;
    }
    site_gemm(t, w->s);
}

static void one_turn(struct turn *u, const struct unlike *way)
{
    struct site *t = u->t;
    struct world *w = t->w;
    turn_load(u, w->s);
    for (int r = 0; r < w->nranks; r++)
        if (way->how(r, w->nranks, u->seed) == COPIED)
            memcpy(u->c[r], u->spare[r], t->all * sizeof(int));
    const enum how how = way->how(w->rank, w->nranks, u->seed);
    make(u, how);
    if (how == LATE_CALL)
        sleep_ms(LATE_MS);
    if (how == CALL_ON_SIDE) {
        edge(w, 0, w->s, w->side);
        site_call(t, w->side);
        edge(w, 1, w->side, w->s);
    } else {
        site_call(t, w->s);
    }
    turn_expect(u, u->c, 0, t->count, false);
    turn_expect_c(u);
    turn_fetch(u, w->s);
}

static void body(struct world *w, const struct scatter_case *c)
{
    const struct unlike *way = c->arg;
    struct turn each[BURST];
    struct site t;
    struct shape shape = usual;
    if (w->all) /* so some ranks' results are written early */
        shape.recv = RECV_IN_PLACE;
    site_open(&t, w, &shape);
    for (int i = 0; i < BURST; i++)
        turn_open(&each[i], &t);
    for (int at = 0; at < way->turns; at += BURST) {
        for (int i = 0; i < BURST; i++)
            one_turn(&each[i], way);
        CUDA(cudaStreamSynchronize(w->s));
        for (int i = 0; i < BURST; i++)
            turn_check(&each[i], c->name);
    }
    for (int i = 0; i < BURST; i++)
        turn_close(&each[i]);
    site_close(&t);
}

/* ---- sites in random turn, with gathers of the same communicator ---- */

enum { SITES = 5, STEPS = 300, GATHERS = 3 };

static const struct shape shapes[SITES] = {
    {.type = BF16, .m = 40, .cols = 12, .k = 48},
    {.type = BF16, .m = 24, .cols = 7, .k = 32, .ta = true, .side = true, .back = true},
    {.type = FP32, .api = SGEMM, .m = 33, .cols = 3, .k = 16, .avg = true},
    {.type = FP16, .api = LT_BIAS, .m = 16, .cols = 24, .k = 24, .recv = RECV_IN_PLACE},
    {.type = BF16, .m = 64, .cols = 1, .k = 8, .tb = true},
};

/* The order is the same on all ranks, and has repeats in it, so that there is something to learn. */
static int drawn(uint64_t step, uint64_t what, uint64_t n)
{
    return (int)(hash64(815 + what, step / 3) % n);
}

static void sites(struct world *w, const struct scatter_case *c)
{
    static const size_t shards[GATHERS] = {4096, 30000, 7};
    struct site t[SITES];
    struct turn u[SITES];
    struct gather g[GATHERS];
    for (int i = 0; i < SITES; i++) {
        site_open(&t[i], w, &shapes[i]);
        turn_open(&u[i], &t[i]);
    }
    for (int i = 0; i < GATHERS; i++)
        gather_alloc(&g[i], w->rank, w->nranks, shards[i]);
    for (uint64_t step = 0; step < STEPS; step++) {
        const int i = drawn(step, 0, SITES), way = drawn(step, 1, 4), of = drawn(step, 2, GATHERS);
        turn_load(&u[i], w->s);
        turn_expect(&u[i], u[i].c, 0, t[i].count, false);
        turn_expect_c(&u[i]);
        if (way < 2)
            gather_load(&g[of], step + 1, w->s);
        if (way == 0)
            gather_call(&g[of], w->comm, w->s);
        const cudaStream_t ready = turn_play(&u[i]);
        if (way == 1)
            gather_call(&g[of], w->comm, w->s);
        turn_fetch(&u[i], ready);
        if (way < 2)
            gather_check(&g[of], step + 1, w->s, c->name);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u[i], c->name);
    }
    for (int i = 0; i < GATHERS; i++)
        gather_free(&g[i]);
    for (int i = 0; i < SITES; i++) {
        turn_close(&u[i]);
        site_close(&t[i]);
    }
}

#define UNLIKE(name_, ...)                                                                                             \
    {                                                                                                                  \
        .name = "unlike-" name_, .list = "unlike", .body = body, .arg = &(const struct unlike)                         \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

const struct scatter_case unlike_cases[] = {UNLIKE("halves", last_halves, TURNS),
                                            UNLIKE("copied", first_copies, TURNS),
                                            UNLIKE("copied-then-not", last_copies_then_not, 2 * TURNS),
                                            UNLIKE("gemm-on-side", odd_on_side, TURNS),
                                            UNLIKE("call-on-side", odd_call_on_side, TURNS),
                                            UNLIKE("late-gemm", late_gemm, TURNS),
                                            UNLIKE("late-call", late_call, TURNS),
                                            UNLIKE("held", held, TURNS),
                                            UNLIKE("any", any, 60),
                                            {.name = "sites", .list = "unlike", .body = sites},
                                            {.name = NULL}};
