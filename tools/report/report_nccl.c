/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL ran: collectives by function, size and what NCCL chose for them. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

struct row {
    const char *comm, *func, *dtype, *reason, *algo, *proto;
    uint64_t bytes, channels, calls, timed;
    double sum, min, max; /* of those timed */
    bool profiled;
};
VEC_TYPE(rows, struct row);

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void add(struct rows *rows, const struct row *wanted)
{
    for (size_t i = 0; i < rows->n; i++) {
        struct row *w = &rows->at[i];
        if (w->comm != wanted->comm || w->bytes != wanted->bytes || w->channels != wanted->channels ||
            w->profiled != wanted->profiled || !same_text(w->func, wanted->func) ||
            !same_text(w->dtype, wanted->dtype) || !same_text(w->algo, wanted->algo) ||
            !same_text(w->proto, wanted->proto) || !same_text(w->reason, wanted->reason))
            continue;
        w->calls += wanted->calls;
        w->sum += wanted->sum;
        w->min = wanted->timed && (!w->timed || wanted->min < w->min) ? wanted->min : w->min;
        w->max = wanted->max > w->max ? wanted->max : w->max;
        w->timed += wanted->timed;
        return;
    }
    if (rows->n < 400)
        vec_push(rows, *wanted);
}

static const char *reason_or_none(const char *reason)
{
    return reason && strcmp(reason, "-") != 0 ? reason : NULL;
}

static void add_sum(struct rows *rows, const struct comm *c, const struct collective_sum *s)
{
    add(rows, &(struct row){.comm = c->name,
                            .func = s->func,
                            .dtype = s->dtype,
                            .reason = reason_or_none(s->reason),
                            .algo = s->algo,
                            .proto = s->proto,
                            .bytes = s->bytes,
                            .channels = s->channels,
                            .calls = s->calls,
                            .timed = s->timed,
                            .sum = (double)s->mean * (double)s->timed,
                            .min = (double)s->min,
                            .max = (double)s->max,
                            .profiled = true});
}

static void add_one(struct rows *rows, const struct comm *c, const struct collective *s)
{
    double time = (double)(s->profiled ? s->kernel : s->end - s->begin);
    add(rows, &(struct row){.comm = c->name,
                            .func = s->func,
                            .dtype = s->dtype,
                            .reason = reason_or_none(s->reason),
                            .algo = s->algo,
                            .proto = s->proto,
                            .bytes = s->bytes,
                            .channels = s->channels,
                            .calls = 1,
                            .timed = time > 0 || !s->profiled,
                            .sum = time,
                            .min = time,
                            .max = time,
                            .profiled = s->profiled});
}

/* The sums hold all calls of the profiler's single lines; without them those lines are used. */
static void add_member(struct rows *rows, const struct report *r, const struct member *b)
{
    const struct comm *c = &r->m->comms.at[b->comm];
    for (size_t i = 0; i < b->sums.n; i++)
        add_sum(rows, c, &b->sums.at[i]);
    for (size_t i = 0; i < b->collectives.n; i++)
        if (!b->collectives.at[i].profiled || b->sums.n == 0)
            add_one(rows, c, &b->collectives.at[i]);
}

static void add_passed(struct rows *rows, const struct report *r)
{
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *s = &r->sites.list.at[i];
        const struct comm *c = &r->m->comms.at[s->comm];
        struct row w = {.comm = c->name,
                        .func = "AllGather",
                        .dtype = s->dtype,
                        .bytes = s->shard * c->nranks,
                        .reason = s->reason};
        if (!s->pass)
            continue;
        for (size_t k = 0; k < s->ranks.n; k++)
            for (size_t j = 0; j < s->ranks.at[k].time.n; j++) {
                w.calls = w.timed = 1;
                w.sum = w.min = w.max = (double)s->ranks.at[k].time.at[j];
                add(rows, &w);
            }
    }
}

static void put_times(struct table *t, const struct row *w)
{
    char buf[3][FORM_ROOM];
    if (w->timed == 0) {
        for (int i = 0; i < 3; i++)
            table_cell(t, "-");
        return;
    }
    table_cell(t, "%s", form_time(buf[0], w->min));
    table_cell(t, "%s", form_time(buf[1], w->sum / (double)w->timed));
    table_cell(t, "%s", form_time(buf[2], w->max));
}

static void put(struct table *t, const struct row *w)
{
    char bytes[FORM_ROOM];
    table_cell(t, "%s", w->func);
    table_cell(t, "%s", form_bytes(bytes, (double)w->bytes));
    table_cell(t, "%s", w->dtype ? w->dtype : "-");
    table_cell(t, "%s", w->reason ? w->reason : "-");
    if (!w->profiled)
        table_cell(t, "events");
    else if (w->algo && strcmp(w->algo, "-") != 0)
        table_cell(t, "%s %s, %" PRIu64 " ch.", w->algo, w->proto ? w->proto : "", w->channels);
    else
        table_cell(t, "profiler");
    table_cell(t, "%" PRIu64, w->calls);
    put_times(t, w);
}

static bool same_decision(const struct tuned *a, const struct tuned *b)
{
    return a->func == b->func && a->algo == b->algo && a->proto == b->proto && a->from == b->from &&
           a->bytes == b->bytes && a->nranks == b->nranks && a->channels == b->channels;
}

VEC_TYPE(tuned_list, struct tuned);

static void collect_tuned(const struct report *r, struct tuned_list *list)
{
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        for (size_t k = 0; k < p->tuned.n && list->n < 100; k++) {
            size_t at = 0;
            while (at < list->n && !same_decision(&list->at[at], &p->tuned.at[k]))
                at++;
            if (at == list->n)
                vec_push(list, p->tuned.at[k]);
        }
    }
}

/* What slipring's tuner told NCCL to take. */
static void report_tuned(struct report *r)
{
    static const struct column columns[] = {
        {"collective", false, true}, {"bytes", true, false},    {"ranks", true, false}, {"algorithm", false, true},
        {"protocol", false, true},   {"channels", true, false}, {"from", false, true}};
    struct table t = {.columns = columns, .n = 7};
    struct tuned_list list = {0};
    collect_tuned(r, &list);
    for (size_t i = 0; i < list.n; i++) {
        const struct tuned *d = &list.at[i];
        char bytes[FORM_ROOM];
        table_cell(&t, "%s", d->func);
        table_cell(&t, "%s", form_bytes(bytes, (double)d->bytes));
        table_cell(&t, "%" PRIu64, d->nranks);
        table_cell(&t, "%s", d->algo ? d->algo : "-");
        table_cell(&t, "%s", d->proto ? d->proto : "-");
        table_cell(&t, "%" PRId32, d->channels);
        table_cell(&t, "%s", d->from ? d->from : "-");
    }
    vec_free(&list);
    if (t.cells.n == 0)
        return;
    out_section(r->o, "tuned", "What the tuner chose");
    out_table(r->o, &t);
}

void report_nccl(struct report *r)
{
    static const struct column columns[] = {{"collective", false, true},
                                            {"bytes", true, false},
                                            {"type", false, true},
                                            {"why not the ring", false, true},
                                            {"seen by, or NCCL chose", false, true},
                                            {"calls", true, false},
                                            {"min", true, false},
                                            {"mean", true, false},
                                            {"max", true, false}};
    struct rows rows = {0};
    struct table t = {.columns = columns, .n = 9};
    bool profiled = false;
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        for (size_t k = 0; k < c->members.n; k++)
            add_member(&rows, r, &r->m->members.at[c->members.at[k]]);
    }
    add_passed(&rows, r);
    for (size_t i = 0; i < rows.n; i++) {
        put(&t, &rows.at[i]);
        profiled |= rows.at[i].profiled;
    }
    if (t.cells.n > 0) {
        out_section(r->o, "nccl", "What NCCL ran");
        out_say(r->o,
                "Calls of all ranks. events: measured on the program's stream. With an algorithm: as NCCL's profiler "
                "interface reports it, times of the kernels on the GPU%s.",
                profiled ? "" : "; there are no such lines here, SLIPRING_PROFILE=on makes them");
        out_table(r->o, &t);
    }
    vec_free(&rows);
    report_tuned(r);
}
