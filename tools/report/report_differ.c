/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that differ: one rank's decision, reason, count or time away from the others'. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "tools/report/report.h"

enum { ROWS_SHOWN = 10 }; /* without --details */

/* What a member's communicator line says, as one text. */
static void decision_of(char *buf, size_t size, const struct member *b)
{
    snprintf(buf, size, "%s%s%.60s",
             b->ring     ? "ring"
             : b->reason ? "NCCL"
                         : "not known",
             b->reason ? ": " : "", b->reason ? b->reason : "");
}

/* The text that most members have. */
static const char *usual(char (*text)[80], size_t n)
{
    size_t best = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < n; k++)
            same += strcmp(text[i], text[k]) == 0;
        if (same > most)
            best = i, most = same;
    }
    return text[best];
}

static void differ_decisions(struct report *r, struct table *t)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        char where[60], (*text)[80] = tool_alloc(c->members.n, sizeof *text);
        snprintf(where, sizeof where, "communicator %.16s", c->name);
        for (size_t k = 0; k < c->members.n; k++)
            decision_of(text[k], sizeof *text, &r->m->members.at[c->members.at[k]]);
        const char *most = usual(text, c->members.n);
        for (size_t k = 0; k < c->members.n; k++)
            if (strcmp(text[k], most) != 0)
                differ_row(t, report_rank_label(r, &r->m->members.at[c->members.at[k]]), where, "decision", text[k],
                           most);
        free(text);
    }
}

static const char *label_of_crank(const struct report *r, const struct comm *c, int32_t crank)
{
    for (size_t k = 0; k < c->members.n; k++)
        if (r->m->members.at[c->members.at[k]].crank == crank)
            return report_rank_label(r, &r->m->members.at[c->members.at[k]]);
    return "a rank without log";
}

/* Buffers that differ in one thing, and the rank that is away: at how many places of the iteration; the first is
 * told. */
struct away {
    const struct comm *comm;
    uint32_t index; /* of that */
    const struct symmetry *first;
    size_t places;
};
VEC_TYPE(aways, struct away);

static bool alike(const struct symmetry *a, const struct symmetry *b)
{
    return a->op == b->op && a->shard == b->shard && a->found.odd_rank == b->found.odd_rank &&
           a->found.what == b->found.what && strcmp(a->buffer, b->buffer) == 0;
}

static void add_away(struct aways *list, const struct comm *c, uint32_t index, const struct symmetry *y)
{
    if (y->found.odd_rank < 0 || (uint32_t)y->found.odd_ranks >= c->nranks)
        return;
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].comm == c && alike(list->at[i].first, y)) {
            list->at[i].places++;
            return;
        }
    vec_push(list, ((struct away){c, index, y, 1}));
}

static void differ_symmetry(struct report *r, struct table *t)
{
    struct aways list = {0};
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        for (size_t k = 0; k < c->symmetry.n; k++)
            add_away(&list, c, r->run->comms.at[i], &c->symmetry.at[k]);
    }
    for (size_t i = 0; i < list.n; i++) {
        const struct symmetry *y = list.at[i].first;
        char where[160], what[128], value[24], expected[24], name[CALL_SITE], times[60] = "";
        const bool known = y->found.value != y->found.expected;
        if (list.at[i].places > 1)
            snprintf(times, sizeof times, ", at %zu places of an iteration; the first", list.at[i].places);
        snprintf(
            where, sizeof where, "%s",
            report_call_site(name, &r->sites, list.at[i].index, comm_first_site(list.at[i].comm, y->op, y->shard)));
        snprintf(what, sizeof what, "%.8s buffer: %.30s%s", y->buffer, sym_difference_name(y->found.what), times);
        snprintf(value, sizeof value, "%" PRIu64, y->found.value);
        snprintf(expected, sizeof expected, "%" PRIu64, y->found.expected);
        differ_row(t, label_of_crank(r, list.at[i].comm, y->found.odd_rank), where, what, known ? value : "-",
                   known ? expected : "-");
    }
    vec_free(&list);
}

/* The table, or its first rows. */
static void cut(struct report *r, struct table *t)
{
    const size_t rows = t->cells.n / t->n;
    for (size_t i = ROWS_SHOWN * t->n; i < t->cells.n && !r->details; i++)
        free(t->cells.at[i]);
    if (!r->details && rows > ROWS_SHOWN)
        t->cells.n = ROWS_SHOWN * t->n;
    out_table(r->o, t);
    if (!r->details && rows > ROWS_SHOWN)
        out_say(r->o, "%zu more rows: `--details`.", rows - ROWS_SHOWN);
}

void report_differences(struct report *r)
{
    static const struct column columns[] = {{"rank", false, true},
                                            {"where", false, true},
                                            {"what", false, true},
                                            {"has", false, true},
                                            {"the others have", false, true}};
    struct table t = {.columns = columns, .n = 5};
    out_section(r->o, "differences", "Ranks that differ");
    if (r->run->ranks.n < 2) {
        out_say(r->o, "These logs are of one rank only.");
        return;
    }
    differ_decisions(r, &t);
    differ_counts(r, &t);
    differ_symmetry(r, &t);
    differ_times(r, &t);
    if (t.cells.n == 0)
        out_say(
            r->o,
            "No rank is away from the others: decisions, reasons, counts and symmetry are equal, and medians of times "
            "lie within 25%% of the others'.");
    cut(r, &t);
}
