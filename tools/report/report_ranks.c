/* SPDX-License-Identifier: Apache-2.0 */
/* One row for each rank, and what one rank has and the others have not. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

struct rank_sum {
    uint64_t calls;
    double time, exposed, hidden;
};

static void sum_sites(const struct report *r, uint32_t rank, struct rank_sum *sum)
{
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *s = &r->sites.list.at[i];
        for (size_t k = 0; k < s->ranks.n && !s->pass; k++) {
            const struct site_rank *q = &s->ranks.at[k];
            if (r->m->members.at[q->member].rank != rank)
                continue;
            sum->calls += q->calls;
            sum->time += q->time_sum;
            sum->exposed += q->exposed_sum;
            sum->hidden += q->hidden_sum;
        }
    }
}

/* How long the other ranks' applications stood still for this rank's shards: their waits that name
 * it. */
static double waited_for(const struct report *r, uint32_t rank)
{
    double sum = 0;
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        const struct comm *c = &r->m->comms.at[b->comm];
        for (size_t k = 0; k < c->members.n; k++) {
            const struct member *q = &r->m->members.at[c->members.at[k]];
            for (size_t s = 0; s < b->spans.n && q->rank == rank && q != b; s++)
                if (b->spans.at[s].lane == LANE_APP && b->spans.at[s].kind == SPAN_WAIT &&
                    b->spans.at[s].peer == q->crank)
                    sum += (double)(b->spans.at[s].end - b->spans.at[s].begin);
        }
    }
    return sum;
}

static void put_reductions(struct table *t, const struct report *r, uint32_t index)
{
    const struct reductions n = report_reductions(r, SLR_COLLECTIVES, index);
    char buf[3][FORM_ROOM];
    table_cell(t, "%" PRIu64, n.traced);
    table_cell(t, "%s", n.traced ? form_time(buf[0], n.time) : "-");
    table_cell(t, "%s", n.traced ? form_time(buf[1], n.exposed) : "-");
    table_cell(t, "%s", form_share(buf[2], overlap_of(n.hidden, n.time)));
}

static void put(struct table *t, const struct report *r, uint32_t index)
{
    const struct rank *k = &r->m->ranks.at[index];
    const struct process *p = &r->m->processes.at[k->process];
    struct rank_sum sum = {0};
    char buf[4][FORM_ROOM];
    double waited = waited_for(r, index);
    sum_sites(r, index, &sum);
    table_cell(t, "%s", k->label);
    table_cell(t, "%s", p->host);
    table_cell(t, "%" PRId64, p->pid);
    table_cell(t, "%s%s%s", k->device ? k->device : "-", k->device_name ? ": " : "",
               k->device_name ? k->device_name : "");
    table_cell(t, "%" PRIu64, sum.calls);
    table_cell(t, "%s", sum.calls ? form_time(buf[0], sum.time) : "-");
    table_cell(t, "%s", sum.calls ? form_time(buf[1], sum.exposed) : "-");
    table_cell(t, "%s", waited > 0 ? form_time(buf[3], waited) : "-");
    table_cell(t, "%s", form_share(buf[2], overlap_of(sum.hidden, sum.time)));
}

void report_ranks(struct report *r)
{
    static const struct column columns[] = {{"rank", false, true},    {"host", false, true},
                                            {"pid", true, false},     {"device", false, true},
                                            {"traced", true, false},  {"gather time", true, false},
                                            {"exposed", true, false}, {"others wait for its shard", true, false},
                                            {"overlap", true, false}};
    /* Where reduce-scatters or all-reduces were traced. */
    static const struct column more[] = {{"rank", false, true},
                                         {"traced reduce-scatters, all-reduces", true, true},
                                         {"their time", true, false},
                                         {"exposed", true, false},
                                         {"overlap", true, false}};
    struct table t = {.columns = columns, .n = 9}, sums = {.columns = more, .n = 5};
    const bool reductions = report_reductions(r, SLR_COLLECTIVES, MODEL_NONE).traced > 0;
    size_t n = r->run->ranks.n < 128 ? r->run->ranks.n : 128;
    if (!r->details && !reductions && r->sites.traced == 0)
        return; /* nothing but their names */
    for (size_t i = 0; i < n; i++)
        put(&t, r, r->run->ranks.at[i]);
    for (size_t i = 0; i < n && reductions; i++) {
        table_cell(&sums, "%s", r->m->ranks.at[r->run->ranks.at[i]].label);
        put_reductions(&sums, r, r->run->ranks.at[i]);
    }
    if (n == 0)
        return;
    out_section(r->o, "ranks", "Ranks");
    out_table(r->o, &t);
    out_table(r->o, &sums);
    if (n < r->run->ranks.n)
        out_say(r->o, "%zu more are not listed.", r->run->ranks.n - n);
}
