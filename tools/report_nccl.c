/* What NCCL ran: collectives by function, size and what NCCL chose for them. */
#include <inttypes.h>
#include <string.h>
#include "tools/report.h"

struct row {
    const char *comm, *func, *dtype, *algo, *proto, *source;
    uint64_t bytes, channels, calls;
    double sum, min, max;
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
            !same_text(w->proto, wanted->proto))
            continue;
        w->calls += wanted->calls;
        w->sum += wanted->sum;
        w->min = wanted->min < w->min ? wanted->min : w->min;
        w->max = wanted->max > w->max ? wanted->max : w->max;
        return;
    }
    if (rows->n < 400)
        vec_push(rows, *wanted);
}

static void add_sum(struct rows *rows, const struct comm *c, const struct collective_sum *s)
{
    add(rows, &(struct row){.comm = c->name,
                            .func = s->func,
                            .dtype = s->dtype,
                            .algo = s->algo,
                            .proto = s->proto,
                            .bytes = s->bytes,
                            .channels = s->channels,
                            .calls = s->calls,
                            .sum = (double)s->mean * (double)s->calls,
                            .min = (double)s->min,
                            .max = (double)s->max,
                            .profiled = true});
}

static void add_one(struct rows *rows, const struct comm *c, const struct collective *s)
{
    double time = (double)(s->end - s->begin);
    add(rows, &(struct row){.comm = c->name,
                            .func = s->func,
                            .dtype = s->dtype,
                            .algo = s->algo,
                            .proto = s->proto,
                            .bytes = s->bytes,
                            .channels = s->channels,
                            .calls = 1,
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
        struct row w = {.comm = c->name, .func = "AllGather", .dtype = s->dtype, .bytes = s->shard * c->nranks};
        if (!s->pass)
            continue;
        for (size_t k = 0; k < s->ranks.n; k++)
            for (size_t j = 0; j < s->ranks.at[k].time.n; j++) {
                w.calls = 1;
                w.sum = w.min = w.max = (double)s->ranks.at[k].time.at[j];
                add(rows, &w);
            }
    }
}

static void put(struct table *t, const struct row *w)
{
    char buf[4][FORM_ROOM];
    table_cell(t, "%s", w->func);
    table_cell(t, "%s", form_bytes(buf[0], (double)w->bytes));
    table_cell(t, "%s", w->dtype ? w->dtype : "-");
    table_cell(t, "%s", w->profiled ? "profiler" : "events");
    table_cell(t, "%s", w->algo ? w->algo : "-");
    table_cell(t, "%s", w->proto ? w->proto : "-");
    table_cell(t, "%s", w->profiled ? form_count(buf[1], w->channels) : "-");
    table_cell(t, "%" PRIu64, w->calls);
    table_cell(t, "%s", form_time(buf[1], w->min));
    table_cell(t, "%s", form_time(buf[2], w->calls ? w->sum / (double)w->calls : 0));
    table_cell(t, "%s", form_time(buf[3], w->max));
}

void report_nccl(struct report *r)
{
    static const struct column columns[] = {
        {"collective", false, true}, {"bytes", true, false},    {"type", false, true},  {"seen by", false, false},
        {"algorithm", false, true},  {"protocol", false, true}, {"chan.", true, false}, {"calls", true, false},
        {"min", true, false},        {"mean", true, false},     {"max", true, false}};
    struct rows rows = {0};
    struct table t = {.columns = columns, .n = 11};
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
                "Calls of all ranks. events: measured on the program's stream. profiler: as NCCL reports it, with the "
                "algorithm, protocol and channels that it chose%s.",
                profiled ? "" : "; there are no such lines here, SLIPRING_PROFILE=on makes them");
        out_table(r->o, &t);
    }
    vec_free(&rows);
}
