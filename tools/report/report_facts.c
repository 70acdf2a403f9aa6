/* SPDX-License-Identifier: Apache-2.0 */
/* What several sections say alike. */
#include <string.h>
#include "tools/report/report.h"

double report_sum(const struct report *r, enum log_field f)
{
    double sum = 0;
    for (size_t i = 0; i < r->run->processes.n; i++)
        sum += (double)r->m->processes.at[r->run->processes.at[i]].summary[f];
    return sum;
}

double report_moved(const struct report *r)
{
    return report_sum(r, F_SUBSTITUTED) + report_sum(r, F_SCATTERS_SUBSTITUTED) + report_sum(r, F_REDUCES_SUBSTITUTED);
}

uint64_t report_count_of(const struct report *r, enum slr_collective_id op, const char *reason)
{
    uint64_t n = 0;
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        for (size_t k = 0; k < p->counts[op].n; k++)
            if (strcmp(p->counts[op].at[k].reason, reason) == 0)
                n += p->counts[op].at[k].n;
    }
    return n;
}

uint64_t report_count(const struct report *r, const char *reason)
{
    return report_count_of(r, SLR_ALL_GATHER, reason);
}

bool report_has_summary(const struct report *r)
{
    for (size_t i = 0; i < r->run->processes.n; i++)
        if (r->m->processes.at[r->run->processes.at[i]].has_summary)
            return true;
    return false;
}

/* Lines show that it has made calls. */
static bool has_called(const struct model *m, uint32_t process)
{
    for (size_t i = 0; i < m->members.n; i++) {
        const struct member *b = &m->members.at[i];
        if (b->process == process && b->shapes.n + b->scatter_shapes.n + b->gathers.n + b->scatters.n + b->placed.n > 0)
            return true;
    }
    return false;
}

static void list_endless(const struct process *p, char *list, size_t room)
{
    char time[FORM_ROOM], told[FORM_ROOM + 64] = "no totals";
    const size_t used = strlen(list);
    if (p->totals_ts)
        snprintf(told, sizeof told, "totals of %s before its last line",
                 form_time(time, (double)(p->last_ts - p->totals_ts)));
    if (room - used < sizeof told + 64)
        return;
    if (p->rank >= 0)
        snprintf(list + used, room - used, "%srank %d (%s)", used ? ", " : "", p->rank, told);
    else
        snprintf(list + used, room - used, "%sprocess %lld (%s)", used ? ", " : "", (long long)p->pid, told);
}

unsigned report_endless(const struct report *r, char *list, size_t room)
{
    unsigned n = 0;
    if (room)
        *list = '\0';
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const uint32_t index = r->run->processes.at[i];
        const struct process *p = &r->m->processes.at[index];
        if (p->has_summary || (!p->totals_ts && !has_called(r->m, index)))
            continue;
        n++;
        if (room)
            list_endless(p, list, room);
    }
    return n;
}

const char *report_least(const struct report *r)
{
    return report_endless(r, NULL, 0) ? "at least " : "";
}

static void add_reductions(struct reductions *sum, const struct member *b, enum slr_collective_id op)
{
    for (size_t i = 0; i < b->scatters.n; i++) {
        const struct gather *g = &b->scatters.at[i];
        const int64_t time = g->end - g->begin;
        if (op != SLR_COLLECTIVES && g->op != op)
            continue;
        sum->traced++;
        sum->time += (double)time;
        sum->exposed += (double)g->exposed;
        sum->hidden += g->exposed < time ? (double)(time - g->exposed) : 0;
    }
}

struct reductions report_reductions(const struct report *r, enum slr_collective_id op, uint32_t rank)
{
    struct reductions sum = {0};
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        if (r->m->comms.at[b->comm].run == r->index && (rank == MODEL_NONE || b->rank == rank))
            add_reductions(&sum, b, op);
    }
    return sum;
}

const char *report_rank_label(const struct report *r, const struct member *b)
{
    return r->m->ranks.at[b->rank].label;
}

size_t report_chosen_sites(const struct report *r, bool pass, size_t *chosen, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *t = &r->sites.list.at[i];
        size_t less = 0; /* of those chosen, the one that takes the least time */
        if (t->pass != pass)
            continue;
        if (n < room) {
            chosen[n++] = i;
            continue;
        }
        for (size_t k = 1; k < n; k++)
            if (r->sites.list.at[chosen[k]].time_sum < r->sites.list.at[chosen[less]].time_sum)
                less = k;
        if (r->sites.list.at[chosen[less]].time_sum >= t->time_sum)
            continue;
        memmove(chosen + less, chosen + less + 1, (n - less - 1) * sizeof *chosen);
        chosen[n - 1] = i;
    }
    return n;
}

void differ_row(struct table *t, const char *rank, const char *where, const char *what, const char *its,
                const char *others)
{
    if (t->cells.n >= (size_t)5 * 60)
        return;
    table_cell(t, "%s", rank);
    table_cell(t, "%s", where);
    table_cell(t, "%s", what);
    table_cell(t, "%s", its);
    table_cell(t, "%s", others);
}
