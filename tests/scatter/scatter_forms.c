/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of GEMM whose output is scattered, with nothing in between. A guess from earlier turns is always right. */
#include "scatter.h"

enum { TURNS = 12 };

const struct shape usual = {.name = "usual", .type = BF16, .m = 40, .cols = 12, .k = 48};

cudaStream_t turn_play(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    site_gemm(t, w->s);
    if (!t->shape.side) {
        site_call(t, w->s);
        return w->s;
    }
    edge(w, 0, w->s, w->side);
    site_call(t, w->side);
    if (!t->shape.back)
        return w->side;
    edge(w, 1, w->side, w->s);
    return w->s;
}

void site_play(struct site *t, int turns, const char *what)
{
    struct turn each[BURST];
    for (int i = 0; i < BURST; i++)
        turn_open(&each[i], t);
    for (int at = 0; at < turns; at += BURST) {
        for (int i = 0; i < BURST; i++) {
            turn_load(&each[i], t->w->s);
            turn_expect(&each[i], each[i].c, 0, t->count, false);
            turn_expect_c(&each[i]);
            const cudaStream_t ready = turn_play(&each[i]);
            turn_fetch(&each[i], ready);
            if (ready != t->w->s)
                edge(t->w, 2, ready, t->w->s);
        }
        CUDA(cudaStreamSynchronize(t->w->s));
        for (int i = 0; i < BURST; i++)
            turn_check(&each[i], what);
    }
    for (int i = 0; i < BURST; i++)
        turn_close(&each[i]);
}

static void form(struct world *w, const struct scatter_case *c)
{
    struct site t;
    site_open(&t, w, c->arg);
    site_play(&t, TURNS, c->name);
    site_close(&t);
}

/* All shapes of a list, one after the other. */
static void alternating(struct world *w, const struct scatter_case *c)
{
    static const struct shape shapes[] = {
        {.type = BF16, .m = 40, .cols = 12, .k = 48},
        {.type = FP16, .m = 24, .cols = 5, .k = 32},
        {.type = FP32, .m = 33, .cols = 7, .k = 16, .avg = true},
    };
    struct site t[LENGTH(shapes)];
    for (int i = 0; i < LENGTH(shapes); i++)
        site_open(&t[i], w, &shapes[i]);
    for (int round = 0; round < TURNS; round++)
        for (int i = 0; i < LENGTH(shapes); i++)
            site_play(&t[i], BURST, c->name);
    for (int i = 0; i < LENGTH(shapes); i++)
        site_close(&t[i]);
}

#define EVEN .m = 40, .cols = 12, .k = 48
#define F(list_, name_, ...)                                                                                           \
    {                                                                                                                  \
        .name = name_, .list = list_, .body = form, .arg = &(const struct shape)                                       \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define OPS(name_, type_, api_)                                                                                        \
    F("forms", name_ "-nn", EVEN, .type = type_, .api = api_),                                                         \
        F("forms", name_ "-tn", EVEN, .type = type_, .api = api_, .ta = true),                                         \
        F("forms", name_ "-nt", EVEN, .type = type_, .api = api_, .tb = true),                                         \
        F("forms", name_ "-tt", EVEN, .type = type_, .api = api_, .ta = true, .tb = true)

/* "forms": GEMMs that slipring may run in parts. "small": of too few columns for that, or of hardly any,
 * or they read C. "sums":
 * what only slipring's way of adding makes, whatever the number of ranks. */
const struct scatter_case form_cases[] = {
    OPS("ex-bf16", BF16, EX),
    OPS("ex-fp16", FP16, EX),
    OPS("ex-fp32", FP32, EX),
    OPS("sgemm", FP32, SGEMM),
    OPS("hgemm", FP16, HGEMM),
    OPS("lt-bf16", BF16, LT),
    OPS("lt-bias", BF16, LT_BIAS),
    F("forms", "lt-bias-fp16", .type = FP16, .api = LT_BIAS, EVEN, .tb = true),
    F("forms", "lt-bias-fp32", .type = FP32, .api = LT_BIAS, EVEN, .ta = true),
    /* Blocks of 8-bit operands begin at multiples of 16 columns; there are three a shard, or none. */
    F("forms", "lt-fp8", .api = LT_FP8, .m = 40, .cols = 48, .k = 48, .ta = true),
    F("small", "lt-fp8-odd", .api = LT_FP8, .m = 40, .cols = 12, .k = 48, .ta = true),
    F("forms", "ex64", .api = EX64, EVEN),
    F("forms", "batch-1", .api = BATCH_1, EVEN, .ta = true),
    F("forms", "avg-bf16", EVEN, .avg = true),
    F("forms", "avg-fp16", .type = FP16, EVEN, .avg = true, .tb = true),
    F("forms", "avg-fp32", .type = FP32, .api = SGEMM, EVEN, .avg = true),
    F("forms", "avg-lt-bias", .api = LT_BIAS, EVEN, .avg = true),
    F("forms", "in-place", EVEN, .recv = RECV_IN_PLACE),
    F("forms", "in-place-avg-fp32", .type = FP32, EVEN, .avg = true, .recv = RECV_IN_PLACE),
    F("small", "in-place-beta", .type = FP16, .api = HGEMM, EVEN, .beta = 1, .recv = RECV_IN_PLACE),
    F("forms", "in-place-side", EVEN, .recv = RECV_IN_PLACE, .side = true, .back = true),
    F("small", "alpha-2-beta-2", EVEN, .alpha = 2, .beta = 2),
    F("small", "beta-fp32", .type = FP32, .api = SGEMM, EVEN, .beta = 1, .avg = true),
    F("small", "beta-lt", .type = FP16, .api = LT, EVEN, .beta = 2),
    F("small", "device-scalars", EVEN, .alpha = 2, .beta = 1, .device_scalars = true),
    F("small", "device-scalars-lt", .type = FP32, .api = LT, EVEN, .beta = 2, .device_scalars = true),
    F("forms", "side", EVEN, .side = true, .back = true),
    F("forms", "side-late", .type = FP32, .api = SGEMM, EVEN, .side = true),
    F("forms", "side-lt-bias", .type = FP16, .api = LT_BIAS, EVEN, .side = true, .back = true),
    F("forms", "rounds-once", .m = 40, .cols = 12, .k = 1, .reach = 15),
    F("forms", "rounds-once-fp16", .type = FP16, .m = 40, .cols = 12, .k = 1, .reach = 45),
    F("forms", "rounds-once-avg", .m = 40, .cols = 12, .k = 1, .reach = 15, .avg = true),
    F("forms", "odd", .m = 33, .cols = 7, .k = 51),
    F("forms", "odd-tn", .type = FP16, .m = 31, .cols = 13, .k = 17, .ta = true),
    F("forms", "odd-fp32", .type = FP32, .api = SGEMM, .m = 7, .cols = 11, .k = 5, .avg = true),
    F("forms", "odd-lt", .api = LT_BIAS, .m = 41, .cols = 9, .k = 24, .tb = true),
    F("forms", "odd-in-place", .m = 37, .cols = 5, .k = 16, .recv = RECV_IN_PLACE),
    F("small", "one-column", .m = 40, .cols = 1, .k = 48),
    F("small", "one-column-odd", .type = FP16, .m = 13, .cols = 1, .k = 9),
    F("small", "one-row", .m = 1, .cols = 24, .k = 16),
    F("small", "one-element", .type = FP32, .api = SGEMM, .m = 1, .cols = 1, .k = 3),
    F("small", "tall", .m = 1023, .cols = 2, .k = 8),
    F("forms", "wide", .m = 8, .cols = 96, .k = 16),
    F("forms", "recv-in-a", EVEN, .recv = RECV_IN_A),
    F("forms", "recv-in-b", .type = FP32, .api = SGEMM, EVEN, .recv = RECV_IN_B),
    F("forms", "recv-in-workspace", .api = LT, EVEN, .recv = RECV_IN_WORKSPACE),
    F("forms", "recv-in-handle-workspace", EVEN, .recv = RECV_IN_WORKSPACE),
    F("forms", "recv-in-a-side", EVEN, .recv = RECV_IN_A, .side = true, .back = true),
    /* Not exact: every way to add gives other bits. slipring adds in fp32, in the order of the ranks. */
    F("sums", "in-order", .type = FP32, .api = SGEMM, .m = 40, .cols = 12, .k = 1, .reach = 4000, .in_order = true),
    {.name = "alternating", .list = "forms", .body = alternating},
    {.name = NULL}};
