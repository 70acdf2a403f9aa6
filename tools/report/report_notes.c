/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings and errors, and what these logs do not have. */
#include <inttypes.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/report/advice.h"

enum { SHOWN = 30, TEXT_SHOWN = 220 };

struct joined { /* one note of several processes */
    const struct note *note;
    uint64_t n;
    unsigned processes;
    const struct process *first;
};
VEC_TYPE(joined_list, struct joined);

static void add(struct joined_list *list, const struct note *n, const struct process *p)
{
    for (size_t i = 0; i < list->n; i++) {
        struct joined *j = &list->at[i];
        if (j->note->event != n->event || (j->note->text != n->text && list->n < 500))
            continue;
        j->n += n->n;
        j->processes++;
        return;
    }
    vec_push(list, ((struct joined){n, n->n, 1, p}));
}

static void collect(struct report *r, struct joined_list *list, const char *level)
{
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        for (size_t k = 0; k < p->notes.n; k++)
            if (p->notes.at[k].level && strcmp(p->notes.at[k].level, level) == 0)
                add(list, &p->notes.at[k], p);
    }
}

static void put(struct table *t, const struct joined *j)
{
    const char *text = j->note->text;
    int shown = (int)utf8_prefix(text, TEXT_SHOWN);
    table_cell(t, "%s", j->note->level);
    table_cell(t, "%s", j->note->event);
    table_cell(t, "%" PRIu64, j->n);
    if (j->processes > 1)
        table_cell(t, "%u processes", j->processes);
    else if (j->first->rank >= 0)
        table_cell(t, "rank %d", j->first->rank);
    else
        table_cell(t, "pid %" PRId64, j->first->pid);
    table_cell(t, "%.*s%s", shown, text, text[shown] ? "..." : "");
}

static void put_notes(struct report *r)
{
    static const struct column columns[] = {{"level", false, false},
                                            {"event", false, true},
                                            {"lines", true, false},
                                            {"of", false, true},
                                            {"says", false, true}};
    struct joined_list list = {0};
    struct table t = {.columns = columns, .n = 5};
    collect(r, &list, "error");
    collect(r, &list, "warn");
    size_t n = list.n;
    for (size_t i = 0; i < n && i < SHOWN; i++)
        put(&t, &list.at[i]);
    out_section(r->o, "warnings", "Warnings and errors");
    if (n == 0)
        out_say(r->o, "None.");
    out_table(r->o, &t);
    if (n > SHOWN)
        out_say(r->o, "%zu more different ones are not listed.", n - SHOWN);
    vec_free(&list);
}

/* Of `nranks` ranks those that `c` has a log of; its members are sorted by rank. */
static uint32_t logged_ranks(const struct model *m, const struct comm *c)
{
    int64_t last = -1;
    uint32_t n = 0;
    for (size_t i = 0; i < c->members.n; i++) {
        int64_t rank = m->members.at[c->members.at[i]].crank;
        if (rank > last && rank < (int64_t)c->nranks)
            n++, last = rank;
    }
    return n;
}

/* The first 16 of those that are missing: a damaged log may say that there are billions. */
static void list_missing(const struct model *m, const struct comm *c, char *list, size_t room)
{
    for (uint32_t k = 0, at = 0, listed = 0; k < c->nranks && listed < 16; k++) {
        while (at < c->members.n && m->members.at[c->members.at[at]].crank < (int32_t)k)
            at++;
        if (at < c->members.n && m->members.at[c->members.at[at]].crank == (int32_t)k)
            continue;
        size_t used = strlen(list);
        snprintf(list + used, room - used, "%s%" PRIu32, listed++ ? ", " : "", k);
    }
}

uint32_t report_absent(const struct report *r, const struct comm *c, char *list, size_t room)
{
    const uint32_t absent = strcmp(c->name, "?") == 0 ? 0 : c->nranks - logged_ranks(r->m, c);
    *list = '\0';
    if (absent)
        list_missing(r->m, c, list, room);
    return absent;
}

static void missing_ranks(struct report *r)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        char list[200];
        const uint32_t absent = report_absent(r, c, list, sizeof list);
        if (absent)
            out_item(r->o, "Communicator %s has %" PRIu32 " ranks; there is no log of %s %s%s.", c->name, c->nranks,
                     absent == 1 ? "rank" : "ranks", list, absent > 16 ? ", ..." : "");
    }
}

/* Traced gathers that the library could not write. */
static void lost_traces(struct report *r)
{
    uint64_t dropped = 0, failed = 0, unfinished = 0, cut = 0;
    for (size_t i = 0; i < r->m->members.n; i++) {
        const struct member *b = &r->m->members.at[i];
        if (r->m->comms.at[b->comm].run != r->index)
            continue;
        dropped += b->dropped, failed += b->failed, unfinished += b->unfinished, cut += b->cut;
    }
    if (dropped + failed + unfinished)
        out_item(r->o,
                 "%" PRIu64 " traced calls: %" PRIu64 " for want of room, %" PRIu64
                 " whose times could not be read, %" PRIu64 " that had not ended with their communicator.",
                 dropped + failed + unfinished, dropped, failed, unfinished);
    if (cut)
        out_item(r->o, "%" PRIu64 " spans of traced calls that had no room.", cut);
}

static bool has_hosts(const struct report *r)
{
    const struct model *m = r->m;
    for (size_t i = 1; i < r->run->processes.n; i++)
        if (m->processes.at[r->run->processes.at[i]].host != m->processes.at[r->run->processes.at[0]].host)
            return true;
    return false;
}

void report_notes(struct report *r)
{
    char list[600];
    put_notes(r);
    out_section(r->o, "missing", "What these logs do not have");
    missing_ranks(r);
    if (r->sites.traced == 0 && report_reductions(r, SLR_COLLECTIVES, MODEL_NONE).traced == 0)
        out_item(r->o, "Times, overlap and the timeline: no line `gather`, `scatter` or `span`. `slipring run --record "
                       "DIR -- COMMAND` records them (it sets SLIPRING_TRACE=1).");
    lost_traces(r);
    if (report_endless(r, list, sizeof list))
        out_item(r->o,
                 "All calls of %s. A process tells its totals at its end (line `summary`), and in between, each "
                 "minute at least (`totals`), with SLIPRING_LOG=info or debug. These have no end: killed, ended "
                 "by _exit, or their logs could not be written or are cut. What their lines show is counted.",
                 list);
    else if (!report_has_summary(r))
        out_item(r->o, "Totals: no line `summary`. It is written at the end of a process that has made calls, with "
                       "SLIPRING_LOG=info or debug.");
    if (has_hosts(r))
        out_item(
            r->o,
            "One clock: the run has several hosts. Their times were put together by their wall clocks, which differ "
            "by microseconds to milliseconds.");
    if (r->o->items == 0)
        out_say(r->o, "Nothing is missing.");
    if (!r->details)
        out_say(r->o, "More of everything: `slipring report --details`. Words: docs/report.md.");
}
