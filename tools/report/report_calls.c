/* SPDX-License-Identifier: Apache-2.0 */
/* The call sites of all collectives, a row each: how many calls, which way they go and why, and what that takes. */
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/report.h"

enum { ROWS_SHOWN = 24, ROWS_MOST = 400, WHY = 400 }; /* ROWS_MOST: with --details */

/* Of a call site. Times are of its traced calls of the ring, on all ranks. */
struct call {
    uint32_t comm, site;
    const struct member *teller;
    const struct site_way *way; /* NULL: not told */
    struct times time;
    double time_sum, hidden_sum;
    uint64_t seen, of_rank; /* calls of one rank, as far as lines show them: the most; of the one that is looked at */
    struct tallies reasons; /* why calls went as they did; n is of no meaning */
    struct slr_names callers;
};
VEC_TYPE(calls, struct call);

static const struct call_site *site_of(const struct report *r, const struct call *c)
{
    return &r->m->comms.at[c->comm].sites.at[c->site];
}

/* ---- what lines say of it ---- */

static void add_traced(struct call *c, const struct gather *g)
{
    const int64_t time = g->end - g->begin;
    c->of_rank++;
    tally(&c->reasons, g->reason, 1);
    if (g->pass)
        return;
    vec_push(&c->time, time);
    c->time_sum += (double)time;
    c->hidden_sum += g->exposed < time ? (double)(time - g->exposed) : 0;
}

static void add_shape(struct call *of, const struct comm *c, const struct shape *h)
{
    const uint32_t first = comm_first_site(c, h->op, h->shard);
    for (uint32_t i = first; i < c->sites.n; i++)
        if ((h->event == E_SUBSTITUTE || h->event == E_PASS) && c->sites.at[i].first == first)
            tally(&of[c->sites.at[i].order].reasons, h->reason, 1);
}

/* `of`: the communicator's, in their order. */
static void add_member(struct call *of, const struct comm *c, const struct member *b)
{
    for (size_t i = 0; i < b->gathers.n; i++)
        add_traced(&of[c->sites.at[b->gathers.at[i].site].order], &b->gathers.at[i]);
    for (size_t i = 0; i < b->scatters.n; i++)
        add_traced(&of[c->sites.at[b->scatters.at[i].site].order], &b->scatters.at[i]);
    for (size_t i = 0; i < c->sites.n; i++) {
        of[i].seen = of[i].of_rank > of[i].seen ? of[i].of_rank : of[i].seen;
        of[i].of_rank = 0;
    }
    for (size_t i = 0; i < b->shapes.n; i++)
        add_shape(of, c, &b->shapes.at[i]);
    for (size_t i = 0; i < b->scatter_shapes.n; i++)
        add_shape(of, c, &b->scatter_shapes.at[i]);
    for (size_t i = 0; i < b->ways.n; i++) {
        struct call *told = &of[c->sites.at[b->call_sites.at[b->ways.at[i].number]].order];
        told->way = &b->ways.at[i];
        told->teller = b;
    }
}

static bool is_here(const void *what, const struct caller *one)
{
    return one->call && one->site == ((const struct call *)what)->site;
}

static bool is_alike(const void *what, const struct caller *one)
{
    const struct trial_site *s = what;
    return one->call == 0 && one->op == s->op && one->shard == s->shard;
}

static void name_callers(const struct report *r, struct call *c)
{
    comm_callers(r->m, c->comm, is_here, c, &c->callers);
    if (c->callers.count == 0)
        comm_callers(r->m, c->comm, is_alike, &site_of(r, c)->what, &c->callers);
}

static void find(const struct report *r, struct calls *all)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        const size_t first = all->n;
        for (uint32_t k = 0; k < c->sites.n; k++)
            vec_add(all);
        for (uint32_t k = 0; k < c->sites.n; k++)
            all->at[first + c->sites.at[k].order] = (struct call){.comm = r->run->comms.at[i], .site = k};
        for (size_t k = 0; k < c->members.n && c->sites.n; k++)
            add_member(&all->at[first], c, &r->m->members.at[c->members.at[k]]);
    }
    for (size_t i = 0; i < r->sites.list.n; i++) { /* what places show of calls that were not traced */
        const struct site *s = &r->sites.list.at[i];
        struct call *c = &all->at[call_site_number(&r->sites, s->comm, s->number) - 1];
        c->seen = !s->pass && s->calls > c->seen ? s->calls : c->seen;
    }
}

static void free_call(struct call *c)
{
    vec_free(&c->time);
    vec_free(&c->reasons);
    slr_names_close(&c->callers);
}

static uint64_t calls_of(const struct call *c)
{
    return c->way ? c->way->calls : c->seen;
}

/* Bytes of one rank, of all calls that are known of. */
static double weight_of(const struct report *r, const struct call *c)
{
    const uint64_t calls = calls_of(c);
    return (double)site_of(r, c)->what.shard * (double)(calls ? calls : 1);
}

/* Leaves those that move most, in their order. Returns how many are left out. */
static size_t choose_calls(const struct report *r, struct calls *all)
{
    const size_t room = r->details ? ROWS_MOST : ROWS_SHOWN;
    size_t left = 0;
    while (all->n > room) {
        size_t least = 0;
        for (size_t i = 1; i < all->n; i++)
            if (weight_of(r, &all->at[i]) < weight_of(r, &all->at[least]))
                least = i;
        free_call(&all->at[least]);
        memmove(all->at + least, all->at + least + 1, (all->n - least - 1) * sizeof *all->at);
        all->n--;
        left++;
    }
    return left;
}

static void release(struct calls *all)
{
    for (size_t i = 0; i < all->n; i++)
        free_call(&all->at[i]);
    vec_free(all);
}

/* ---- its row ---- */

static bool is_one(const char *reason, enum slr_reason which)
{
    return strcmp(reason, slr_reason_name(which)) == 0;
}

static bool moves(const char *reason)
{
    for (enum slr_reason r = 0; r < SLR_R_FUSED; r++)
        if (slr_reason_moves(r) && is_one(reason, r))
            return true;
    return false;
}

static bool has(const struct call *c, enum slr_reason which)
{
    for (size_t i = 0; i < c->reasons.n; i++)
        if (is_one(c->reasons.at[i].reason, which))
            return true;
    return false;
}

/* Of the way that a site goes while, and because, its ways are compared. */
static bool is_of_trials(const char *reason)
{
    return moves(reason) || is_one(reason, SLR_R_TRIAL) || is_one(reason, SLR_R_MEASURED) ||
           is_one(reason, SLR_R_SCATTER_UNTRIED);
}

static void add_reason(char *why, const char *reason)
{
    const size_t len = strlen(why);
    char words[WHY];
    snprintf(why + len, WHY - len, "%s%s", len ? "; some: " : "", report_reason_words(words, sizeof words, reason));
}

static void put_measured(char *why, const struct call *c)
{
    char ring[TRIAL_MS], nccl[TRIAL_MS];
    double over_ring, by_nccl;
    if (!report_way_times(c->teller, c->way, &over_ring, &by_nccl))
        snprintf(why, WHY, "measured");
    else
        snprintf(why, WHY, "measured: NCCL %s, ring %s ms", report_trial_ms(nccl, by_nccl),
                 report_trial_ms(ring, over_ring));
}

static void put_why(struct table *t, const struct report *r, const struct call *c)
{
    const char *whole = report_whole_of(r, &r->m->comms.at[c->comm]);
    static const char *const words[][2] = {{"program", "measured by what the program takes"},
                                           {"known", "a rule of the tune file"},
                                           {"unmeasured", "too few calls to compare ring and NCCL"}};
    char why[WHY] = "";
    if (c->way && strcmp(c->way->reason, "measured") == 0)
        put_measured(why, c);
    for (size_t i = 0; i < sizeof words / sizeof *words && c->way; i++)
        if (strcmp(c->way->reason, words[i][0]) == 0)
            snprintf(why, sizeof why, "%s", words[i][1]);
    for (size_t i = 0; i < c->reasons.n; i++)
        if (!is_of_trials(c->reasons.at[i].reason))
            add_reason(why, c->reasons.at[i].reason);
    if (!*why && has(c, SLR_R_SCATTER_UNTRIED))
        snprintf(why, sizeof why, "too few calls to compare ring and NCCL, or SLIPRING_TRIALS=0");
    if (has(c, SLR_R_GRAPH))
        snprintf(why + strlen(why), WHY - strlen(why), "%sin CUDA graphs", *why ? "; " : "");
    if (has(c, SLR_R_HOSTS) && has(c, SLR_R_TRIAL))
        snprintf(why + strlen(why), WHY - strlen(why), "%scompared by what the program takes", *why ? "; " : "");
    if (has(c, SLR_R_HOSTS))
        snprintf(why + strlen(why), WHY - strlen(why), "%sover hosts", *why ? "; " : "");
    if (!*why && whole)
        snprintf(why, sizeof why, "inside of a host, of calls of %s", whole);
    table_cell(t, "%s", *why ? why : "not compared");
}

/* Where most of its calls go, as far as that is known. */
static const char *way_of(const struct call *c)
{
    bool ring = false, nccl = false;
    if (c->way)
        return c->way->nccl ? "NCCL" : "ring";
    for (size_t i = 0; i < c->reasons.n; i++)
        *(moves(c->reasons.at[i].reason) ? &ring : &nccl) = true;
    return ring ? nccl ? "both" : "ring" : nccl ? "NCCL" : "-";
}

/* How the GEMM goes by the trials that count: one word for all of the site's GEMMs, or how many there are. */
static void put_gemm(struct table *t, const struct report *r, const struct call *c)
{
    const struct trial_site *what = &site_of(r, c)->what;
    uint64_t least = UINT64_MAX, most = 0, gemms = 0;
    for (size_t i = 0; c->teller && i < c->teller->trials.n; i++) {
        const struct trial *a = &c->teller->trials.at[i];
        if (c->teller->call_sites.at[a->number] != c->site || a->nccl || a->open || a->m == 0)
            continue;
        gemms++;
        least = a->parts < least ? a->parts : least;
        most = a->parts > most ? a->parts : most;
    }
    for (size_t i = 0; i < r->sites.list.n && !c->teller && what->op == SLR_ALL_GATHER; i++) {
        const struct site *s = &r->sites.list.at[i];
        if (s->comm == c->comm && s->number == c->site && !s->pass && (s->parts || s->fused)) {
            gemms = 1;
            least = most = s->parts ? s->parts : s->fused->parts;
        }
    }
    if (gemms == 0)
        table_cell(t, "-");
    else if (most == 0)
        table_cell(t, "in parts");
    else if (most == 1)
        table_cell(t, least == 1 ? "whole" : "whole or in parts");
    else if (least == most)
        table_cell(t, "in %" PRIu64 " parts", most);
    else
        table_cell(t, "in up to %" PRIu64 " parts", most);
}

static void put_gain(struct table *t, const struct call *c)
{
    double ring, nccl;
    if (c->way && !c->way->nccl && report_way_times(c->teller, c->way, &ring, &nccl))
        table_cell(t, "%.0f%%", 100 * (1 - ring / nccl));
    else
        table_cell(t, "-");
}

static void put_row(struct table *t, const struct report *r, struct call *c, bool comms, bool traced)
{
    char name[CALL_SITE], buf[2][FORM_ROOM];
    const uint64_t calls = calls_of(c);
    table_cell(t, "%s", report_call_site(name, &r->sites, c->comm, c->site));
    if (comms)
        table_cell(t, "%s", r->m->comms.at[c->comm].name);
    table_cell(t, "%s", c->way || calls ? form_count(buf[0], calls) : "-");
    table_cell(t, "%s", way_of(c));
    put_why(t, r, c);
    put_gemm(t, r, c);
    put_gain(t, c);
    if (!traced)
        return;
    table_cell(t, "%s", c->time.n ? form_time(buf[0], (double)percentile(&c->time, 50)) : "-");
    table_cell(t, "%s", form_share(buf[1], overlap_of(c->hidden_sum, c->time_sum)));
}

static size_t choose(struct column *columns, bool comms, bool traced)
{
    static const struct column all[] = {
        {"call site", false, false}, {"communicator", false, false}, {"calls", true, false},
        {"goes", false, false},      {"why", false, true},           {"GEMM", false, true},
        {"less", true, false},       {"median", true, false},        {"hidden", true, false}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if ((i != 1 || comms) && (i < 7 || traced))
            columns[n++] = all[i];
    return n;
}

static void put_table(struct report *r, struct calls *all, size_t left)
{
    struct column columns[9];
    bool comms = false, traced = false;
    for (size_t i = 0; i < all->n; i++) {
        comms |= r->details && all->at[i].comm != all->at[0].comm;
        traced |= all->at[i].time.n > 0;
    }
    struct table t = {.columns = columns, .n = choose(columns, comms, traced)};
    for (size_t i = 0; i < all->n; i++)
        put_row(&t, r, &all->at[i], comms, traced);
    out_say(r->o,
            "A call site is a collective of one size (bytes of one rank) that comes behind the same calls; a letter "
            "tells those of one size apart. calls: of one rank. GEMM: how the one goes that reads what was gathered, "
            "or computes what is sent. less: of NCCL's time, as measured.%s",
            traced ? " median: of the calls over the ring that were traced; hidden: the share of their time in which "
                     "the program's streams worked."
                   : "");
    out_table(r->o, &t);
    if (left)
        out_say(r->o, "%zu more, that move less, are not listed%s.", left, r->details ? "" : ": `--details`");
}

static void put_callers(struct report *r, struct calls *all)
{
    struct table t = {.columns = caller_columns, .n = 2};
    for (size_t i = 0; i < all->n; i++) {
        struct call *c = &all->at[i];
        char name[CALL_SITE];
        name_callers(r, c);
        report_caller_rows(&t, report_call_site(name, &r->sites, c->comm, c->site), &c->callers);
    }
    report_callers(r, &t);
}

void report_calls(struct report *r)
{
    struct calls all = {0};
    find(r, &all);
    const size_t left = choose_calls(r, &all);
    out_section(r->o, "sites", "Call sites");
    if (all.n == 0)
        out_say(r->o, "No all-gather, reduce-scatter or all-reduce in these logs.");
    else
        put_table(r, &all, left);
    put_callers(r, &all);
    release(&all);
}
