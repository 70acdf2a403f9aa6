/* SPDX-License-Identifier: Apache-2.0 */
#include "scatter_wrong.h"

static void for_ranks(struct turn *u, void (*model)(struct turn *u, int rank))
{
    for (int r = 0; model && r < u->t->w->nranks; r++)
        model(u, r);
}

void other_enqueue(struct turn *u, const struct other *o)
{
    struct site *t = u->t;
    if (o->make)
        o->make(u);
    else
        site_gemm(t, t->w->s);
    if (o->between)
        o->between(u);
    if (o->call)
        o->call(u);
    else
        site_call(t, t->w->s);
    if (o->after)
        o->after(u);
}

void other_play(struct turn *u, const struct other *o, cudaGraphExec_t exec)
{
    struct site *t = u->t;
    turn_load(u, t->w->s);
    for_ranks(u, o->model);
    if (exec)
        CUDA(cudaGraphLaunch(exec, t->w->s));
    else
        other_enqueue(u, o);
    free(u->want_scratch); /* an ordinary turn does not look at it */
    u->want_scratch = NULL;
    if (o->expect)
        o->expect(u);
    else
        turn_expect(u, u->c, 0, t->count, false);
    for_ranks(u, o->model_after);
    turn_expect_c(u);
    turn_fetch(u, t->w->s);
}

void wrong_body(struct world *w, const struct scatter_case *c)
{
    /* What was learned, then the other ways, one after the other and between those that are as always. */
    static const char turns[] = ".........x..xx.x....x.x..";
    static const struct other usual_one;
    const struct other *o = c->arg, *as_always = o->always ? o->always : &usual_one;
    struct shape shape = usual;
    struct turn each[BURST];
    struct site t;
    shape.beta = o->beta;
    shape.type = o->type;
    shape.m = o->m ? o->m : shape.m;
    shape.pad = o->pad;
    if (strstr(c->name, "graph"))
        nccl_connects(w->comm, w->s);
    site_open(&t, w, &shape);
    if (o->open)
        o->open(&t);
    for (int i = 0; i < BURST; i++)
        turn_open(&each[i], &t);
    for (int at = 0; at + BURST < LENGTH(turns); at += BURST) {
        for (int i = 0; i < BURST; i++)
            other_play(&each[i], turns[at + i] == 'x' || o->each ? o : as_always, NULL);
        CUDA(cudaStreamSynchronize(w->s));
        for (int i = 0; i < BURST; i++)
            turn_check(&each[i], c->name);
    }
    for (int i = 0; i < BURST; i++)
        turn_close(&each[i]);
    if (o->close)
        o->close(&t);
    site_close(&t);
}

/* ---- how the host sees an end ---- */

void await_event(struct turn *u)
{
    struct world *w = u->t->w;
    CUDA(cudaEventRecord(w->event[0], w->s));
    CUDA(cudaEventSynchronize(w->event[0]));
}

void poll_event(struct turn *u)
{
    struct world *w = u->t->w;
    CUDA(cudaEventRecord(w->event[0], w->s));
    while (cudaEventQuery(w->event[0]) == cudaErrorNotReady)
        sleep_ms(1);
}

void poll_stream(struct turn *u)
{
    while (cudaStreamQuery(u->t->w->s) == cudaErrorNotReady)
        sleep_ms(1);
}
