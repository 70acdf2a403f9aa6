/* SPDX-License-Identifier: Apache-2.0 */
/* The call sites of a communicator: those whose ways its rank 0 has told, in that order; then what calls show. */
#include <stdlib.h>
#include <uthash.h>
#include "tools/model/model_tables.h"

/* No padding that is not zero. Context 0: the size's first one. */
struct key {
    uint64_t op, shard, context;
};

struct row {
    struct key key;
    uint32_t number;
    UT_hash_handle hh;
};

struct book {
    struct comm *c;
    struct row *rows;
    uint32_t told; /* sites, of trials */
    bool all;      /* these are all: calls in other contexts are those of their size's first site */
};

static const struct row *look_up(const struct book *b, const struct key *key)
{
    struct row *row;
    HASH_FIND(hh, b->rows, key, sizeof *key, row);
    return row;
}

static void enter(struct book *b, const struct key *key, uint32_t number)
{
    struct row *row = tool_alloc(1, sizeof *row);
    row->key = *key;
    row->number = number;
    HASH_ADD(hh, b->rows, key, sizeof row->key, row);
}

static uint32_t add(struct book *b, const struct trial_site *what)
{
    const struct key size = {what->op, what->shard, 0}, own = {what->op, what->shard, what->context};
    const uint32_t number = (uint32_t)b->c->sites.n;
    const struct row *first = look_up(b, &size);
    struct call_site s = {.what = *what, .first = first ? first->number : number};
    vec_push(&b->c->sites, s);
    b->c->sites.at[number].nth = b->c->sites.at[s.first].alike++;
    if (!first)
        enter(b, &size, number);
    if (what->context)
        enter(b, &own, number);
    return number;
}

/* Calls have context 0 until the first site of their size has got one: that is the first that they name. It can get
 * another one later. */
static uint32_t site_of(struct book *b, enum slr_collective_id op, uint64_t shard, uint64_t context)
{
    const struct key size = {op, shard, 0}, own = {op, shard, context};
    const struct row *first = look_up(b, &size), *found = look_up(b, &own);
    if (found || (first && first->number < b->told && b->all))
        return found ? found->number : first->number;
    if (!first || first->number < b->told || b->c->sites.at[first->number].what.context)
        return add(b, &(struct trial_site){.shard = shard, .context = context, .op = op});
    b->c->sites.at[first->number].what.context = context;
    enter(b, &own, first->number);
    return first->number;
}

static void add_told(struct book *b, const struct model *m)
{
    b->c->teller = MODEL_NONE;
    for (size_t i = 0; i < b->c->members.n && b->c->teller == MODEL_NONE; i++) {
        const struct member *q = &m->members.at[b->c->members.at[i]];
        for (size_t k = 0; k < q->trial_sites.n; k++) {
            b->c->teller = b->c->members.at[i];
            add(b, &q->trial_sites.at[k]);
        }
        b->told = (uint32_t)b->c->sites.n;
        b->all = q->ways.n > 0;
    }
}

static void add_calls(struct book *b, struct member *q)
{
    for (size_t i = 0; i < q->trial_sites.n; i++) {
        const struct trial_site *s = &q->trial_sites.at[i];
        vec_push(&q->call_sites, site_of(b, s->op, s->shard, s->context));
    }
    for (size_t i = 0; i < q->gathers.n; i++)
        q->gathers.at[i].site = site_of(b, SLR_ALL_GATHER, q->gathers.at[i].shard, q->gathers.at[i].context);
    for (size_t i = 0; i < q->scatters.n; i++)
        q->scatters.at[i].site = site_of(b, q->scatters.at[i].op, q->scatters.at[i].shard, q->scatters.at[i].context);
}

static void add_shapes(struct book *b, const struct shape *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i].event == E_SUBSTITUTE || at[i].event == E_PASS)
            site_of(b, at[i].op, at[i].shard, 0);
}

/* Of a line caller_place: the site of its call; where that was not traced, the one that its size has. */
static void find_callers(const struct comm *c, struct member *q)
{
    for (size_t i = 0; i < q->callers.n; i++) {
        struct caller *one = &q->callers.at[i];
        const struct gather *g = one->call ? member_call(q, false, one->call) : NULL;
        one->site = MODEL_NONE;
        if (!one->call)
            continue;
        const struct sym_use *use = one->place < q->places.n ? &q->places.at[one->place].use : NULL;
        const uint32_t first = use ? comm_first_site(c, use->op, use->shard) : MODEL_NONE;
        if (g)
            one->site = g->site;
        else if (first != MODEL_NONE && c->sites.at[first].alike == 1)
            one->site = first;
    }
}

static const struct comm *ordering; /* for by_size: qsort passes no context */

static int by_size(const void *x, const void *y)
{
    const struct call_site *a = &ordering->sites.at[*(const uint32_t *)x],
                           *b = &ordering->sites.at[*(const uint32_t *)y];
    const uint64_t ka[] = {a->what.op, UINT64_MAX - a->what.shard, a->nth},
                   kb[] = {b->what.op, UINT64_MAX - b->what.shard, b->nth};
    for (size_t i = 0; i < sizeof ka / sizeof *ka; i++)
        if (ka[i] != kb[i])
            return ka[i] < kb[i] ? -1 : 1;
    return 0;
}

static void order(struct comm *c)
{
    uint32_t *at = tool_alloc(c->sites.n, sizeof *at);
    for (uint32_t i = 0; i < c->sites.n; i++)
        at[i] = i;
    ordering = c;
    if (c->sites.n > 1)
        qsort(at, c->sites.n, sizeof *at, by_size);
    for (uint32_t i = 0; i < c->sites.n; i++)
        c->sites.at[at[i]].order = i;
    free(at);
}

static void free_rows(struct book *b)
{
    struct row *row, *next;
    HASH_ITER(hh, b->rows, row, next)
    {
        HASH_DEL(b->rows, row);
        free(row);
    }
}

uint32_t comm_first_site(const struct comm *c, enum slr_collective_id op, uint64_t shard)
{
    for (uint32_t i = 0; i < c->sites.n; i++)
        if (c->sites.at[i].what.op == op && c->sites.at[i].what.shard == shard)
            return c->sites.at[i].first;
    return MODEL_NONE;
}

void model_find_sites(struct model *m)
{
    for (size_t i = 0; i < m->comms.n; i++) {
        struct book b = {.c = &m->comms.at[i]};
        add_told(&b, m);
        for (size_t k = 0; k < b.c->members.n; k++)
            add_calls(&b, &m->members.at[b.c->members.at[k]]);
        for (size_t k = 0; k < b.c->members.n; k++) {
            const struct member *q = &m->members.at[b.c->members.at[k]];
            add_shapes(&b, q->shapes.at, q->shapes.n);
            add_shapes(&b, q->scatter_shapes.at, q->scatter_shapes.n);
        }
        for (size_t k = 0; k < b.c->symmetry.n; k++)
            site_of(&b, b.c->symmetry.at[k].op, b.c->symmetry.at[k].shard, 0);
        order(b.c);
        for (size_t k = 0; k < b.c->members.n; k++)
            find_callers(b.c, &m->members.at[b.c->members.at[k]]);
        free_rows(&b);
    }
}
