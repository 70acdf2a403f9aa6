/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters and all-reduces: what was decided at each call site and why, what they took, and what to do. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/advice.h"

enum { ALIGN = 256, SLOTS = 2, WRONG_LEAST = 8, ONCE = 8 }; /* ONCE: fewer calls are no part of a loop */

/* All calls of one shape, on all ranks. */
struct scatter_site {
    uint32_t comm;
    enum slr_collective_id op;
    uint64_t shard, count;
    bool in_place, made; /* made: a GEMM has computed what is sent */
    const char *dtype;
    struct tallies reasons; /* that the log has for it; n is of no meaning */
    struct times time, exposed;
    double time_sum, hidden_sum;
    uint64_t traced, fused; /* calls */
};
VEC_TYPE(found, struct scatter_site);

static struct scatter_site *site_of(struct found *all, const struct scatter_site *wanted)
{
    for (size_t i = 0; i < all->n; i++) {
        struct scatter_site *s = &all->at[i];
        if (s->comm == wanted->comm && s->op == wanted->op && s->shard == wanted->shard && s->count == wanted->count &&
            s->in_place == wanted->in_place && s->dtype == wanted->dtype)
            return s;
    }
    vec_push(all, *wanted);
    return &all->at[all->n - 1];
}

static void add_shapes(struct found *all, uint32_t comm, const struct member *b)
{
    for (size_t i = 0; i < b->scatter_shapes.n; i++) {
        const struct shape *h = &b->scatter_shapes.at[i];
        if (h->event == E_PRODUCED)
            continue;
        struct scatter_site *s = site_of(all, &(struct scatter_site){.comm = comm,
                                                                     .op = h->op,
                                                                     .shard = h->shard,
                                                                     .count = h->count,
                                                                     .in_place = h->in_place,
                                                                     .dtype = h->dtype});
        s->made |= h->made;
        tally(&s->reasons, h->reason, 1);
    }
}

static void add_traced(struct found *all, uint32_t comm, const struct member *b)
{
    for (size_t i = 0; i < b->scatters.n; i++) {
        const struct gather *g = &b->scatters.at[i];
        const int64_t time = g->end - g->begin;
        struct scatter_site *s = site_of(all, &(struct scatter_site){.comm = comm,
                                                                     .op = g->op,
                                                                     .shard = g->shard,
                                                                     .count = g->count,
                                                                     .in_place = g->in_place,
                                                                     .dtype = g->dtype});
        const bool fused = g->ended && strcmp(g->ended, slr_reason_name(SLR_R_FUSED)) == 0;
        vec_push(&s->time, time);
        vec_push(&s->exposed, g->exposed);
        s->time_sum += (double)time;
        s->hidden_sum += g->exposed < time ? (double)(time - g->exposed) : 0;
        s->traced++;
        s->fused += fused;
        s->made |= fused;
        tally(&s->reasons, g->reason, 1);
    }
}

static int in_order(const void *x, const void *y)
{
    const struct scatter_site *a = x, *b = y;
    const uint64_t ka[] = {a->comm, a->op, a->shard, a->count, a->in_place},
                   kb[] = {b->comm, b->op, b->shard, b->count, b->in_place};
    for (size_t i = 0; i < sizeof ka / sizeof *ka; i++)
        if (ka[i] != kb[i])
            return ka[i] < kb[i] ? -1 : 1;
    return strcmp(a->dtype ? a->dtype : "", b->dtype ? b->dtype : "");
}

static void find(struct found *all, const struct report *r)
{
    *all = (struct found){0};
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const uint32_t comm = r->run->comms.at[i];
        const struct comm *c = &r->m->comms.at[comm];
        for (size_t k = 0; k < c->members.n; k++) {
            add_shapes(all, comm, &r->m->members.at[c->members.at[k]]);
            add_traced(all, comm, &r->m->members.at[c->members.at[k]]);
        }
    }
    if (all->n > 1)
        qsort(all->at, all->n, sizeof *all->at, in_order);
}

static void release(struct found *all)
{
    for (size_t i = 0; i < all->n; i++) {
        vec_free(&all->at[i].reasons);
        vec_free(&all->at[i].time);
        vec_free(&all->at[i].exposed);
    }
    vec_free(all);
}

static bool has_reason(const struct scatter_site *s, enum slr_reason reason)
{
    for (size_t i = 0; i < s->reasons.n; i++)
        if (strcmp(s->reasons.at[i].reason, slr_reason_name(reason)) == 0)
            return true;
    return false;
}

/* ---- the tables ---- */

/* Of the first call site of its size. */
static uint32_t number_of(const struct report *r, const struct scatter_site *s)
{
    return call_site_number(&r->sites, s->comm, comm_first_site(&r->m->comms.at[s->comm], s->op, s->shard));
}

static void put_shape(struct table *t, const struct report *r, const struct scatter_site *s)
{
    char bytes[FORM_ROOM];
    table_cell(t, "#%" PRIu32, number_of(r, s));
    table_cell(t, "%s", r->m->comms.at[s->comm].name);
    table_cell(t, "%s", slr_collectives[s->op].words);
    table_cell(t, "%s, %" PRIu64 " %s%s", form_bytes(bytes, (double)s->shard), s->count, s->dtype ? s->dtype : "?",
               s->in_place ? ", in place" : "");
}

static bool is_moved(const char *reason)
{
    return strcmp(reason, slr_reason_name(SLR_R_RING)) == 0 || strcmp(reason, slr_reason_name(SLR_R_GRAPH)) == 0;
}

/* "ring and graph; NCCL: trial, measured". */
static void put_reasons(struct table *t, const struct scatter_site *s)
{
    const bool ring = has_reason(s, SLR_R_RING), graph = has_reason(s, SLR_R_GRAPH);
    char list[200] = "";
    size_t len = 0;
    for (size_t i = 0; i < s->reasons.n; i++)
        if (!is_moved(s->reasons.at[i].reason) && len + 60 < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%.50s", len ? ", " : "", s->reasons.at[i].reason);
    table_cell(t, "%s%s%s%s%s%s", ring ? "ring" : "", ring && graph ? " and " : "", graph ? "graph" : "",
               len && (ring || graph) ? "; " : "", len ? "NCCL: " : "", list);
}

/* The GEMMs of its size that were computed in blocks: "8192 x 16384 x 4096 in 8 blocks". */
static void put_gemms(struct table *t, const struct report *r, const struct scatter_site *s)
{
    const struct comm *c = &r->m->comms.at[s->comm];
    char list[200] = "";
    size_t len = 0;
    for (size_t k = 0; k < c->members.n && !len; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->scatter_shapes.n; i++) {
            const struct shape *h = &b->scatter_shapes.at[i];
            const bool of_op = h->op == s->op || h->op == SLR_ALL_GATHER; /* not told */
            if (h->event == E_PRODUCED && of_op && h->shard == s->shard && len + 70 < sizeof list)
                len += (size_t)snprintf(list + len, sizeof list - len,
                                        "%s%" PRIu64 " x %" PRIu64 " x %" PRIu64 " in %" PRIu64, len ? "; " : "", h->m,
                                        h->n, h->k, h->parts);
        }
    }
    table_cell(t, "%s", len ? list : s->made ? "whole" : "none known");
}

static void put_times(struct table *t, struct scatter_site *s)
{
    char buf[4][FORM_ROOM];
    if (!s->traced) {
        for (int i = 0; i < 5; i++)
            table_cell(t, "-");
        return;
    }
    table_cell(t, "%" PRIu64 ", %" PRIu64 " fused", s->traced, s->fused);
    table_cell(t, "%s", form_time(buf[0], (double)percentile(&s->time, 50)));
    table_cell(t, "%s", form_time(buf[1], (double)percentile(&s->time, 90)));
    table_cell(t, "%s", form_time(buf[2], (double)percentile(&s->exposed, 50)));
    table_cell(t, "%s", form_share(buf[3], overlap_of(s->hidden_sum, s->time_sum)));
}

static void figures(struct report *r, struct found *all)
{
    static const struct column decided[] = {
        {"call site", false, false},  {"communicator", false, false},
        {"collective", false, false}, {"shard, count", false, true},
        {"went to", false, true},     {"GEMM before it: m, n, k, blocks", false, true}};
    static const struct column measured[] = {{"call site", false, false}, {"measured", false, true},
                                             {"median", true, false},     {"p90", true, false},
                                             {"exposed", true, false},    {"overlap", true, false}};
    struct table t = {.columns = decided, .n = sizeof decided / sizeof *decided};
    struct table times = {.columns = measured, .n = sizeof measured / sizeof *measured};
    bool any = false;
    for (size_t i = 0; i < all->n && i < SITES_SHOWN; i++) {
        put_shape(&t, r, &all->at[i]);
        put_reasons(&t, &all->at[i]);
        put_gemms(&t, r, &all->at[i]);
        any |= all->at[i].traced > 0;
    }
    for (size_t i = 0; i < all->n && i < SITES_SHOWN && any; i++) {
        table_cell(&times, "#%" PRIu32, number_of(r, &all->at[i]));
        put_times(&times, &all->at[i]);
    }
    out_table(r->o, &t);
    if (all->n > SITES_SHOWN)
        out_say(r->o, "%zu more sites are not listed.", all->n - SITES_SHOWN);
    if (any)
        out_say(r->o,
                "Of those over the ring that were traced, on all ranks. median, p90: from the first part that travels, "
                "or from the call, to the last sum, of an all-reduce to the last that is copied. exposed: from the "
                "stream's reaching the call, behind the GEMM, until it went on, median. overlap: 1 - exposed / time, "
                "over all.");
    out_table(r->o, &times);
}

/* ---- what is counted ---- */

/* What the reasons of the sites mean, and how many calls of all ranks had each. */
static void meanings(struct report *r, const struct found *all)
{
    static const struct column columns[] = {{"reason", false, false}, {"calls", true, false}, {"means", false, true}};
    struct table t = {.columns = columns, .n = 3};
    struct tallies seen = {0};
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        for (int id = SLR_ALL_GATHER + 1; id < SLR_COLLECTIVES; id++)
            for (size_t k = 0; k < p->counts[id].n; k++)
                tally(&seen, p->counts[id].at[k].reason, p->counts[id].at[k].n);
    }
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < all->at[i].reasons.n; k++)
            tally(&seen, all->at[i].reasons.at[k].reason, 0);
    for (size_t i = 0; i < seen.n; i++) {
        const char *name = seen.at[i].reason, *meaning = reason_meaning(name);
        const uint64_t n = seen.at[i].n;
        table_cell(&t, "%s", name);
        if (n)
            table_cell(&t, "%" PRIu64, n);
        else
            table_cell(&t, "-");
        table_cell(&t, "%s", meaning ? meaning : "not known here");
    }
    out_table(r->o, &t);
    vec_free(&seen);
}

/* "600 reduce-scatters of all ranks, 410 of them over the ring; 36 all-reduces of all ranks, ...". */
static void say_counts(struct report *r)
{
    const double scatters = report_sum(r, F_SCATTERS), reduces = report_sum(r, F_REDUCES);
    char counts[2][120] = {"", ""};
    if (scatters > 0)
        snprintf(counts[0], sizeof counts[0], "%s%.0f reduce-scatters of all ranks, %.0f of them over the ring%s",
                 report_least(r), scatters, report_sum(r, F_SCATTERS_SUBSTITUTED), reduces > 0 ? "; " : "");
    if (reduces > 0)
        snprintf(counts[1], sizeof counts[1], "%s%.0f all-reduces of all ranks, %.0f of them over the ring",
                 report_least(r), reduces, report_sum(r, F_REDUCES_SUBSTITUTED));
    out_say(r->o,
            "%s%s. %.0f of those over the ring went behind the parts of their GEMM; %.0f GEMMs were computed in blocks "
            "because such a call was expected.",
            counts[0], counts[1], report_sum(r, F_SCATTERS_FUSED), report_sum(r, F_SCATTERS_PRODUCED));
}

void report_scatters(struct report *r)
{
    struct found all;
    find(&all, r);
    if (all.n > 0 || report_sum(r, F_SCATTERS) + report_sum(r, F_REDUCES) > 0) {
        out_section(r->o, "scatters", "Reduce-scatters and all-reduces");
        if (report_sum(r, F_SCATTERS) + report_sum(r, F_REDUCES) > 0)
            say_counts(r);
        figures(r, &all);
        meanings(r, &all);
    }
    release(&all);
}

/* ---- what to do ---- */

/* "Reduce-scatter #2". */
static const char *name_of(char buf[FORM_ROOM], const struct report *r, const struct scatter_site *s)
{
    const char *words = slr_collectives[s->op].words;
    snprintf(buf, FORM_ROOM, "%c%s #%" PRIu32, toupper((unsigned char)*words), words + 1, number_of(r, s));
    return buf;
}

/* Bytes of a shard that the two slots hold of each other rank, as its ranks have told; 0: not told. */
static uint64_t slots_hold(const struct report *r, const struct comm *c)
{
    uint64_t slot = 0;
    for (size_t k = 0; k < c->members.n; k++) {
        const uint64_t own = r->m->members.at[c->members.at[k]].slot_bytes;
        slot = own && (!slot || own < slot) ? own : slot;
    }
    return c->nranks > 1 ? slot * SLOTS / (c->nranks - 1) / ALIGN * ALIGN : 0;
}

/* ns that a rank stood still for its calls, as far as they were traced. */
static double cost_of(const struct report *r, const struct scatter_site *s)
{
    const struct comm *c = &r->m->comms.at[s->comm];
    const uint64_t every = r->m->members.at[c->members.at[0]].every;
    double sum = 0;
    for (size_t i = 0; i < s->exposed.n; i++)
        sum += (double)s->exposed.at[i];
    return sum / (double)c->members.n * (double)(every ? every : 1);
}

static void advise_room(struct report *r, struct advices *a, const struct scatter_site *s)
{
    char name[FORM_ROOM];
    const struct comm *c = &r->m->comms.at[s->comm];
    const uint64_t area = (s->shard + ALIGN - 1) / ALIGN * ALIGN, all = c->nranks > 1 ? area * (c->nranks - 1) : 0,
                   mib = ((all + SLOTS - 1) / SLOTS + ((uint64_t)1 << 20) - 1) >> 20, hold = slots_hold(r, c);
    if (has_reason(s, SLR_R_SCATTER_ROOM))
        advice_add(a, ADVICE_ROOM, 0,
                   "%s does not fit the staging slots: SLIPRING_SLOT_BYTES=%" PRIu64
                   "M does; with SLIPRING_CACHE_BYTES of at least twice that for each communicator.",
                   name_of(name, r, s), mib);
    else if (s->made && hold && s->shard > hold && (has_reason(s, SLR_R_RING) || has_reason(s, SLR_R_GRAPH)))
        advice_add(a, ADVICE_ROOM, cost_of(r, s),
                   "%s is sent behind its GEMM and not part by part, as its shards do not fit the staging slots: "
                   "SLIPRING_SLOT_BYTES=%" PRIu64
                   "M is room enough; with SLIPRING_CACHE_BYTES of at least twice that for each communicator.",
                   name_of(name, r, s), mib);
}

static bool tried(const struct report *r, const struct scatter_site *s)
{
    const struct comm *c = &r->m->comms.at[s->comm];
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->trials.n; i++)
            if (b->trials.at[i].site.op == s->op && b->trials.at[i].site.shard == s->shard)
                return true;
        for (size_t i = 0; i < b->ways.n; i++) /* by what the program takes, without times of its own */
            if (b->ways.at[i].site.op == s->op && b->ways.at[i].site.shard == s->shard &&
                strcmp(b->ways.at[i].reason, "unmeasured") != 0)
                return true;
    }
    return false;
}

static void advise_untried(struct report *r, struct advices *a, const struct scatter_site *s)
{
    char name[FORM_ROOM], words[UNTRIED_ROOM];
    uint64_t calls;
    if (!has_reason(s, SLR_R_SCATTER_UNTRIED) || tried(r, s))
        return;
    const enum untried why = untried_why(r, &r->m->comms.at[s->comm], s->op, s->shard, &calls);
    if (why == UNTRIED_FEW && calls < ONCE)
        return;
    advice_add(a, ADVICE_REST, 0,
               "%s: ring and NCCL were not compared to the end: %s%s. SLIPRING_%s=always uses the ring from the first "
               "call on.",
               name_of(name, r, s), untried_words(words, r, why, calls),
               report_count(r, slr_reason_name(SLR_R_GRAPH)) ? ", outside of CUDA graphs, in which nothing is tried"
                                                             : "",
               slr_setting_rows[slr_collectives[s->op].setting].name);
}

/* Each wrong guess has cost a GEMM in parts. */
static void advise_guesses(struct report *r, struct advices *a)
{
    const double made = report_sum(r, F_SCATTERS_PRODUCED), used = report_sum(r, F_SCATTERS_FUSED);
    const double calls = report_sum(r, F_SCATTERS) + report_sum(r, F_REDUCES);
    if (made - used >= WRONG_LEAST && made - used > made / 4 && made - used > calls / 16) /* else it has been learnt */
        advice_add(
            a, ADVICE_REST, 0,
            "%.0f of %.0f GEMMs that were computed in blocks, for a reduce-scatter or all-reduce to send each block "
            "early, were then sent as a whole: something else is put on a stream of the device in between, or GEMMs "
            "of the same shape have other uses as well. Where what is in between can be moved, blocks are sent while "
            "the next ones are computed.",
            made - used, made);
}

void report_scatter_advice(struct report *r, struct advices *a)
{
    struct found all;
    find(&all, r);
    for (size_t i = 0; i < all.n && i < SITES_SHOWN; i++) {
        advise_room(r, a, &all.at[i]);
        advise_untried(r, a, &all.at[i]);
    }
    advise_guesses(r, a);
    release(&all);
}
