/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/model/sites.h"
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "base/status.h"

double overlap_of(double hidden, double time)
{
    if (!(time > 0))
        return -1;
    return hidden >= time ? 1 : hidden / time;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

int64_t percentile(struct times *t, unsigned percent)
{
    if (t->n == 0)
        return 0;
    qsort(t->at, t->n, sizeof *t->at, by_value);
    return t->at[(t->n - 1) * percent / 100];
}

void tally(struct tallies *t, const char *reason, uint64_t n)
{
    if (!reason)
        return;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->at[i].reason, reason) == 0) {
            t->at[i].n += n;
            return;
        }
    vec_push(t, ((struct reason_count){reason, n}));
}

const char *reason_meaning(const char *name)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (strcmp(slr_reason_name((enum slr_reason)r), name) == 0)
            return slr_reason_doc((enum slr_reason)r);
    return NULL;
}

const char *reason_cure(const char *name)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (strcmp(slr_reason_name((enum slr_reason)r), name) == 0)
            return slr_reason_cure((enum slr_reason)r);
    return NULL;
}

/* What makes a site; no padding that is not zero. */
struct site_key {
    const char *reason; /* NULL: of the ring */
    uint64_t comm, number, pass;
};

struct site_row {
    struct site_key key;
    size_t index;
    UT_hash_handle hh;
};

static struct site_key key_of(const struct site *t)
{
    return (struct site_key){t->pass ? t->reason : NULL, t->comm, t->number, t->pass};
}

static struct site *find_site(struct sites *s, const struct site *wanted)
{
    struct site_key key = key_of(wanted);
    struct site_row *row;
    HASH_FIND(hh, s->rows, &key, sizeof key, row);
    if (!row) {
        row = tool_alloc(1, sizeof *row);
        row->key = key;
        row->index = s->list.n;
        HASH_ADD(hh, s->rows, key, sizeof row->key, row);
        vec_push(&s->list, *wanted);
    }
    return &s->list.at[row->index];
}

static void free_rows(struct sites *s)
{
    struct site_row *row, *next;
    HASH_ITER(hh, s->rows, row, next)
    {
        HASH_DEL(s->rows, row);
        free(row);
    }
}

static struct site_rank *find_rank(struct site *t, uint32_t member)
{
    if (t->ranks.n && t->ranks.at[t->ranks.n - 1].member == member)
        return &t->ranks.at[t->ranks.n - 1];
    vec_push(&t->ranks, ((struct site_rank){.member = member}));
    return &t->ranks.at[t->ranks.n - 1];
}

static struct site site_of(uint32_t comm, const struct gather *g)
{
    return (struct site){.comm = comm,
                         .number = g->site,
                         .pass = g->pass,
                         .shard = g->shard,
                         .count = g->count,
                         .dtype = g->dtype,
                         .in_place = g->in_place,
                         .reason = g->reason};
}

static bool in_graph(const char *reason)
{
    return reason && strcmp(reason, slr_reason_name(SLR_R_GRAPH)) == 0;
}

/* How much of a gather was hidden, in 1/10000 of its time. One that took no time was all hidden. */
static int64_t share_of(const struct gather *g)
{
    double time = (double)(g->end - g->begin), hidden = time - (double)g->exposed;
    return hidden <= 0 && g->exposed > 0 ? 0 : time > 0 ? (int64_t)(1e4 * hidden / time) : 10000;
}

static bool one_host(const struct model *m, const struct comm *c)
{
    for (size_t i = 1; i < c->members.n; i++)
        if (m->processes.at[m->members.at[c->members.at[i]].process].host !=
            m->processes.at[m->members.at[c->members.at[0]].process].host)
            return false;
    return true;
}

/* See sites.h. */
static int64_t late_of(const struct model *m, const struct comm *c, const struct gather *g)
{
    int64_t last = g->begin;
    for (size_t i = 0; i < c->members.n; i++) {
        const struct gather *h = member_gather(&m->members.at[c->members.at[i]], g->pass, g->call);
        last = h && h->begin > last ? h->begin : last;
    }
    return last - g->begin < g->exposed ? last - g->begin : g->exposed;
}

static void add_ending(struct site *t, const struct gather *g, int64_t late)
{
    struct ending *e = NULL;
    int64_t time = g->end - g->begin;
    for (size_t i = 0; i < t->endings.n && !e; i++)
        if (t->endings.at[i].reason == g->ended)
            e = &t->endings.at[i];
    if (!e) {
        e = vec_add(&t->endings);
        e->reason = g->ended;
    }
    vec_push(&e->time, time);
    vec_push(&e->exposed, g->exposed);
    vec_push(&e->late, late);
    vec_push(&e->share, share_of(g));
    e->time_sum += (double)time;
    e->hidden_sum += g->exposed < time ? (double)(time - g->exposed) : 0;
}

static void add_gather(struct sites *s, struct site *t, uint32_t member, const struct gather *g, int64_t late)
{
    struct site_rank *r = find_rank(t, member);
    int64_t time = g->end - g->begin;
    t->mixed |= t->in_place != g->in_place || t->dtype != g->dtype;
    r->calls++;
    r->graphs += in_graph(g->reason);
    vec_push(&r->time, time);
    vec_push(&r->exposed, g->exposed);
    vec_push(&r->late, late);
    r->late_sum += (double)late;
    r->time_sum += (double)time;
    r->exposed_sum += (double)g->exposed;
    r->hidden_sum += g->exposed < time ? (double)(time - g->exposed) : 0;
    r->slot += g->slot;
    r->place += g->place;
    r->push += g->push;
    if (!g->pass) {
        tally(&r->ended, g->ended, 1);
        add_ending(t, g, late);
        vec_push(&s->share, share_of(g));
        if (g->ended && strcmp(g->ended, "fused") == 0)
            vec_push(&s->fused_share, share_of(g));
    }
    s->traced++;
}

/* NCCL's profiler names the passed call that an operation is. */
static void add_choice(struct sites *s, const struct member *b, const struct collective *o)
{
    const struct gather *g = o->profiled && o->call ? member_gather(b, true, o->call) : NULL;
    if (!g)
        return;
    struct site wanted = site_of(b->comm, g), *t = find_site(s, &wanted);
    for (size_t i = 0; i < t->choices.n; i++) {
        struct choice *c = &t->choices.at[i];
        if (c->algo == o->algo && c->proto == o->proto && c->channels == o->channels) {
            c->n++;
            return;
        }
    }
    vec_push(&t->choices, ((struct choice){o->algo, o->proto, o->channels, 1}));
}

static void add_member(struct sites *s, const struct model *m, uint32_t index)
{
    const struct member *b = &m->members.at[index];
    const struct comm *c = &m->comms.at[b->comm];
    const bool compare = one_host(m, c);
    for (size_t i = 0; i < b->gathers.n; i++) {
        const struct gather *g = &b->gathers.at[i];
        struct site wanted = site_of(b->comm, g);
        add_gather(s, find_site(s, &wanted), index, g, compare ? late_of(m, c, g) : 0);
    }
    for (size_t i = 0; i < b->collectives.n; i++)
        add_choice(s, b, &b->collectives.at[i]);
}

enum { LOOKED_AT = 256 };

/* The call site whose calls come at a place of the iteration: that of one which was traced, else the size's first. */
static uint32_t site_at(const struct model *m, const struct comm *c, const struct symmetry *y)
{
    const struct phase *p = NULL;
    for (size_t i = 0; i < c->phases.n && !p; i++)
        p = c->phases.at[i].number == y->phase ? &c->phases.at[i] : NULL;
    for (uint64_t k = 0; p && k < y->calls && k < LOOKED_AT; k++)
        for (size_t i = 0; i < c->members.n; i++) {
            const struct gather *g =
                member_gather(&m->members.at[c->members.at[i]], false, p->first + y->site + k * p->period);
            if (g)
                return g->site;
        }
    return comm_first_site(c, SLR_ALL_GATHER, y->shard);
}

/* Where buffers lay; shows also sites that no traced gather has shown. */
static void add_symmetry(struct sites *s, const struct model *m, uint32_t comm)
{
    const struct comm *c = &m->comms.at[comm];
    for (size_t i = 0; i < c->symmetry.n; i++) {
        const struct symmetry *y = &c->symmetry.at[i];
        if (y->op != SLR_ALL_GATHER)
            continue;
        struct site wanted = {.comm = comm, .number = site_at(m, c, y), .shard = y->shard};
        struct site *t = find_site(s, &wanted);
        const bool known = s->traced || c->sites.at[c->sites.at[wanted.number].first].alike == 1;
        t->calls += !known || strcmp(y->buffer, "send") == 0 ? 0 : y->calls; /* they are recv's as well */
        vec_push(&t->buffers, y);
    }
}

static bool covered(const struct sites *s, const struct site *wanted)
{
    for (size_t i = 0; i < s->list.n; i++) {
        const struct site *t = &s->list.at[i];
        if (t->comm == wanted->comm && t->pass == wanted->pass && t->shard == wanted->shard &&
            (!t->dtype || t->dtype == wanted->dtype) && (!t->pass || t->reason == wanted->reason))
            return true;
    }
    return false;
}

static void add_shapes(struct sites *s, const struct comm *c, const struct member *b)
{
    for (size_t i = 0; i < b->shapes.n; i++) {
        const struct shape *h = &b->shapes.at[i];
        struct site wanted = {.comm = b->comm,
                              .number = comm_first_site(c, SLR_ALL_GATHER, h->shard),
                              .pass = h->event == E_PASS,
                              .shard = h->shard,
                              .count = h->count,
                              .dtype = h->dtype,
                              .in_place = h->in_place,
                              .reason = h->reason};
        if ((h->event == E_SUBSTITUTE || h->event == E_PASS) && !covered(s, &wanted))
            find_site(s, &wanted);
    }
}

/* Type and GEMM of a site from the lines about shapes, where only one has its communicator and
 * shard. */
static void describe(struct site *t, const struct model *m)
{
    const struct comm *c = &m->comms.at[t->comm];
    const struct member *b = &m->members.at[c->members.at[0]];
    unsigned gemms = 0, types = 0;
    for (size_t i = 0; i < b->shapes.n && !t->pass; i++) {
        const struct shape *h = &b->shapes.at[i];
        if (h->shard != t->shard)
            continue;
        if (h->event == E_FUSED && gemms++ == 0)
            t->fused = h;
        if (h->event == E_SUBSTITUTE && !t->dtype && types++ == 0)
            t->dtype = h->dtype, t->count = h->count, t->reason = h->reason, t->in_place = h->in_place;
    }
    if (gemms > 1)
        t->fused = NULL;
}

static uint64_t parts_of(const struct member *b, const struct gather *g)
{
    const struct span *at;
    size_t n = member_spans(b, g->pass, g->call, &at);
    uint64_t parts = 0;
    for (size_t i = 0; i < n; i++)
        parts += at[i].kind == SPAN_GEMM;
    return parts;
}

static void count_parts(struct sites *s, const struct member *b, struct times *parts)
{
    for (size_t i = 0; i < b->gathers.n; i++) {
        struct site wanted = site_of(b->comm, &b->gathers.at[i]);
        uint64_t n = parts_of(b, &b->gathers.at[i]);
        struct site *t = find_site(s, &wanted);
        if (n)
            vec_push(&parts[t - s->list.at], (int64_t)n);
    }
}

static int most_first(const void *x, const void *y)
{
    const struct ending *a = x, *b = y;
    if (a->time.n != b->time.n)
        return a->time.n > b->time.n ? -1 : 1;
    return strcmp(a->reason ? a->reason : "", b->reason ? b->reason : "");
}

static void sum_up(struct sites *s, struct site *t)
{
    struct times time = {0}, exposed = {0}, late = {0};
    double late_sum = 0;
    uint64_t graphs = 0, calls = 0;
    for (size_t i = 0; i < t->ranks.n; i++) {
        struct site_rank *r = &t->ranks.at[i];
        for (size_t k = 0; k < r->time.n; k++) {
            vec_push(&time, r->time.at[k]);
            vec_push(&exposed, r->exposed.at[k]);
            vec_push(&late, r->late.at[k]);
        }
        r->median = percentile(&r->time, 50);
        r->exposed_median = percentile(&r->exposed, 50);
        t->time_sum += r->time_sum;
        t->exposed_sum += r->exposed_sum;
        late_sum += r->late_sum;
        t->hidden_sum += r->hidden_sum;
        t->slot += r->slot, t->place += r->place, t->push += r->push;
        graphs += r->graphs, calls += r->calls;
        t->traced = r->calls > t->traced ? r->calls : t->traced;
        for (size_t k = 0; k < r->ended.n; k++)
            tally(&t->ended, r->ended.at[k].reason, r->ended.at[k].n);
    }
    t->made = graphs < calls                  ? graphs ? SITE_BOTH : SITE_CALLED
              : graphs || in_graph(t->reason) ? SITE_IN_GRAPHS
                                              : SITE_CALLED;
    for (size_t i = 0; i < t->endings.n; i++) {
        struct ending *e = &t->endings.at[i];
        e->median = percentile(&e->time, 50);
        e->exposed_median = percentile(&e->exposed, 50);
        e->late_median = percentile(&e->late, 50);
        e->share_median = percentile(&e->share, 50);
    }
    if (t->endings.n > 1)
        qsort(t->endings.at, t->endings.n, sizeof *t->endings.at, most_first);
    t->median = percentile(&time, 50);
    t->p90 = percentile(&time, 90);
    t->exposed_median = percentile(&exposed, 50);
    t->late_median = percentile(&late, 50);
    const bool all = t->ranks.n && s->m->members.at[t->ranks.at[0].member].every == 1;
    t->calls = all || t->traced > t->calls ? t->traced : t->calls;
    *(t->pass ? &s->pass_time : &s->ring_time) += t->time_sum;
    s->ring_exposed += t->pass ? 0 : t->exposed_sum;
    s->ring_late += t->pass ? 0 : late_sum;
    s->ring_hidden += t->pass ? 0 : t->hidden_sum;
    vec_free(&time);
    vec_free(&exposed);
    vec_free(&late);
}

static bool is_here(const void *what, const struct caller *c)
{
    return c->call && c->site == ((const struct site *)what)->number;
}

static bool is_alike(const void *what, const struct caller *c)
{
    const struct site *t = what;
    const bool moved = in_graph(c->reason) || (c->reason && strcmp(c->reason, slr_reason_name(SLR_R_RING)) == 0);
    return c->call == 0 && c->op == SLR_ALL_GATHER && c->shard == t->shard && (!t->dtype || c->dtype == t->dtype) &&
           (t->pass ? c->reason == t->reason : moved);
}

/* Of its places in the iteration, or else of all calls of its shape. */
static void name_callers(struct site *t, const struct model *m)
{
    if (!t->pass)
        comm_callers(m, t->comm, is_here, t, &t->callers);
    if (t->callers.count == 0)
        comm_callers(m, t->comm, is_alike, t, &t->callers);
}

static const struct model *ordering; /* for in_order: qsort passes no context */

static int in_order(const void *x, const void *y)
{
    const struct site *a = x, *b = y;
    const struct call_site *sa = &ordering->comms.at[a->comm].sites.at[a->number],
                           *sb = &ordering->comms.at[b->comm].sites.at[b->number];
    const uint64_t ka[] = {a->comm, a->pass, sa->order}, kb[] = {b->comm, b->pass, sb->order};
    for (size_t i = 0; i < sizeof ka / sizeof *ka; i++)
        if (ka[i] != kb[i])
            return ka[i] < kb[i] ? -1 : 1;
    return strcmp(a->reason ? a->reason : "", b->reason ? b->reason : "");
}

static void find_parts(struct sites *s, const struct model *m, uint32_t run)
{
    struct times *parts = tool_alloc(s->list.n, sizeof *parts);
    for (uint32_t i = 0; i < m->members.n; i++)
        if (m->comms.at[m->members.at[i].comm].run == run)
            count_parts(s, &m->members.at[i], parts);
    for (size_t i = 0; i < s->list.n; i++) {
        s->list.at[i].parts = (uint64_t)percentile(&parts[i], 50);
        vec_free(&parts[i]);
    }
    free(parts);
}

void sites_find(struct sites *s, const struct model *m, uint32_t run)
{
    *s = (struct sites){.m = m, .before = tool_alloc(m->comms.n, sizeof *s->before)};
    const struct run *r = &m->runs.at[run];
    uint32_t before = 0;
    for (size_t i = 0; i < r->comms.n; i++) {
        const struct comm *c = &m->comms.at[r->comms.at[i]];
        s->before[r->comms.at[i]] = before;
        before += (uint32_t)c->sites.n;
        for (size_t k = 0; k < c->members.n; k++)
            add_member(s, m, c->members.at[k]);
        add_symmetry(s, m, r->comms.at[i]);
        for (size_t k = 0; k < c->members.n; k++)
            add_shapes(s, c, &m->members.at[c->members.at[k]]);
    }
    find_parts(s, m, run);
    for (size_t i = 0; i < s->list.n; i++) {
        describe(&s->list.at[i], m);
        name_callers(&s->list.at[i], m);
        sum_up(s, &s->list.at[i]);
    }
    free_rows(s);
    ordering = m;
    if (s->list.n > 1)
        qsort(s->list.at, s->list.n, sizeof *s->list.at, in_order);
}

void sites_free(struct sites *s)
{
    for (size_t i = 0; i < s->list.n; i++) {
        struct site *t = &s->list.at[i];
        for (size_t k = 0; k < t->ranks.n; k++) {
            vec_free(&t->ranks.at[k].time);
            vec_free(&t->ranks.at[k].exposed);
            vec_free(&t->ranks.at[k].late);
            vec_free(&t->ranks.at[k].ended);
        }
        for (size_t k = 0; k < t->endings.n; k++) {
            vec_free(&t->endings.at[k].time);
            vec_free(&t->endings.at[k].exposed);
            vec_free(&t->endings.at[k].late);
            vec_free(&t->endings.at[k].share);
        }
        vec_free(&t->endings);
        vec_free(&t->buffers);
        slr_names_close(&t->callers);
        vec_free(&t->choices);
        vec_free(&t->ranks);
        vec_free(&t->ended);
    }
    vec_free(&s->list);
    vec_free(&s->share);
    vec_free(&s->fused_share);
    free(s->before);
}

uint32_t call_site_number(const struct sites *s, uint32_t comm, uint32_t site)
{
    return s->before[comm] + s->m->comms.at[comm].sites.at[site].order + 1;
}
