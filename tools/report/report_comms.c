/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: which went to the ring, and why the others did not. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "tools/report/report.h"

/* Found by a duel, which one of its ranks tells of: all calls of it stay with NCCL. */
static bool left_to_nccl(const struct report *r, const struct comm *c)
{
    for (size_t i = 0; i < c->members.n; i++) {
        const struct member *b = &r->m->members.at[c->members.at[i]];
        for (size_t k = b->duels.n; k-- > 0;)
            if (!b->duels.at[k].of)
                return strcmp(b->duels.at[k].by, "ring") != 0;
    }
    return false;
}

const char *report_whole_of(const struct report *r, const struct comm *c)
{
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        if (b->inside && strcmp(b->inside, c->name) == 0)
            return r->m->comms.at[b->comm].name;
    }
    return NULL;
}

/* How long NCCL was at work between the hosts, and how long gathers were under way; those of one call overlap, and come in
 * the order of their begins. */
static void add_legs(const struct member *b, double *rail, double *all)
{
    int64_t until = INT64_MIN;
    for (size_t i = 0; i < b->collectives.n; i++) {
        const struct collective *k = &b->collectives.at[i];
        if (!k->profiled && strcmp(k->func, "Rail") == 0)
            *rail += (double)(k->end - k->begin);
    }
    for (size_t i = 0; i < b->gathers.n; i++) {
        const struct gather *g = &b->gathers.at[i];
        if (g->pass)
            continue;
        if (g->end > until)
            *all += (double)(g->end - (g->begin > until ? g->begin : until));
        until = g->end > until ? g->end : until;
    }
}

/* Of the part inside of a host: whether gathers wait for the network, or for links. */
static void put_legs(struct table *t, const struct report *r, const struct comm *c)
{
    double rail = 0, all = 0;
    for (size_t i = 0; i < c->members.n; i++)
        add_legs(&r->m->members.at[c->members.at[i]], &rail, &all);
    const double share = all > 0 ? 100 * rail / all : 0;
    char network[80] = "";
    if (rail > 0)
        snprintf(network, sizeof network, "; of its gathers' time the network took %.0f%%",
                 share < 100 ? share : 100.0);
    table_cell(t, "ring of a host, for %s%s", report_whole_of(r, c), network);
}

static void put_decision(struct table *t, const struct report *r, const struct comm *c, const struct member *b)
{
    if (b->hosts && left_to_nccl(r, c))
        table_cell(t, "NCCL: measured, against the ring of each of %" PRIu64 " hosts", b->hosts);
    else if (b->hosts)
        table_cell(t, "ring of each of %" PRIu64 " hosts", b->hosts);
    else if (report_whole_of(r, c))
        put_legs(t, r, c);
    else if (b->ring)
        table_cell(t, "ring");
    else if (b->reason && b->peer >= 0)
        table_cell(t, "NCCL: %s, because of rank %d", b->reason, b->peer);
    else
        table_cell(t, "%s%s", b->reason ? "NCCL: " : "not known", b->reason ? b->reason : "");
}

static void put_phase(struct table *t, const struct phase *p, size_t n)
{
    if (!p)
        table_cell(t, "not seen");
    else if (p->period == 1)
        table_cell(t, "each call, from call %" PRIu64 " on%s", p->first, n > 1 ? " (several phases)" : "");
    else
        table_cell(t, "every %" PRIu64 " calls, from call %" PRIu64 " on%s", p->period, p->first,
                   n > 1 ? " (several phases)" : "");
}

static void put_comm(struct table *t, const struct report *r, const struct comm *c)
{
    const struct member *b = &r->m->members.at[c->members.at[0]];
    char bytes[FORM_ROOM], slot[FORM_ROOM];
    double staging = 0;
    for (size_t i = 0; i < c->members.n; i++)
        staging += (double)r->m->members.at[c->members.at[i]].staging_bytes;
    table_cell(t, "%s", c->name);
    table_cell(t, "%" PRIu32, c->nranks);
    table_cell(t, "%zu", c->members.n);
    put_decision(t, r, c, b);
    table_cell(t, "%s", b->slot_bytes ? form_bytes(slot, (double)b->slot_bytes) : "-");
    table_cell(t, "%s", staging > 0 ? form_bytes(bytes, staging) : "-");
    put_phase(t, c->phases.n ? &c->phases.at[c->phases.n - 1] : NULL, c->phases.n);
}

void report_communicators(struct report *r)
{
    static const struct column columns[] = {{"communicator", false, false}, {"ranks", true, false},
                                            {"with a log", true, false},    {"decision", false, true},
                                            {"slot", true, false},          {"staging, all", true, false},
                                            {"calls repeat", false, true}};
    struct table t = {.columns = columns, .n = 7};
    for (size_t i = 0; i < r->run->comms.n && i < 100; i++)
        put_comm(&t, r, &r->m->comms.at[r->run->comms.at[i]]);
    if (t.cells.n == 0)
        return;
    out_section(r->o, "communicators", "Communicators");
    out_table(r->o, &t);
    if (r->run->comms.n > 100)
        out_say(r->o, "%zu more are not listed.", r->run->comms.n - 100);
}
