/* SPDX-License-Identifier: Apache-2.0 */
/* The same for Prometheus: all samples of a metric stand together (metrics.def). */
#include <inttypes.h>
#include "tools/top/top.h"

/* A value of a label: \, " and the end of a line are written as such. */
static void put_label(FILE *to, const char *name, const char *value)
{
    fprintf(to, "%s=\"", name);
    for (; *value; value++)
        if (*value == '\n')
            fputs("\\n", to);
        else
            fprintf(to, *value == '\\' || *value == '"' ? "\\%c" : "%c", *value);
    putc('"', to);
}

static void put_name(FILE *to, const char *metric, const struct top_process *p)
{
    fprintf(to, "%s{pid=\"%d\",rank=\"%d\",", metric, (int)p->pid, p->rank);
    put_label(to, "program", p->name);
}

static void put_calls(FILE *to, const char *metric, const struct top *t)
{
    for (size_t i = 0; i < t->processes.n; i++)
        for (int id = 0; t->processes.at[i].nranks && id < SLR_COLLECTIVES; id++) {
            const struct top_process *p = &t->processes.at[i];
            const uint64_t moved = p->shown.moved[id], calls = p->shown.calls[id];
            put_name(to, metric, p);
            fprintf(to, ",op=\"%s\",way=\"ring\"} %" PRIu64 "\n", slr_collectives[id].op, moved);
            put_name(to, metric, p);
            fprintf(to, ",op=\"%s\",way=\"nccl\"} %" PRIu64 "\n", slr_collectives[id].op,
                    calls > moved ? calls - moved : 0);
        }
}

static void put_memory(FILE *to, const char *metric, const struct top *t)
{
    for (size_t i = 0; i < t->processes.n; i++)
        if (t->processes.at[i].nranks) {
            const struct top_process *p = &t->processes.at[i];
            put_name(to, metric, p);
            fprintf(to, ",kind=\"staging\"} %" PRIu64 "\n", p->shown.staging);
            put_name(to, metric, p);
            fprintf(to, ",kind=\"kept\"} %" PRIu64 "\n", p->shown.kept);
        }
}

static void put_idle(FILE *to, const char *metric, const struct top *t)
{
    for (size_t i = 0; i < t->processes.n; i++)
        if (t->processes.at[i].nranks && top_idle_s(t, &t->processes.at[i]) >= 0) {
            put_name(to, metric, &t->processes.at[i]);
            fprintf(to, "} %.3f\n", top_idle_s(t, &t->processes.at[i]));
        }
}

static void put_of_rank(FILE *to, const char *metric, const struct top_block *b, int rank)
{
    fprintf(to, "%s{communicator=\"%.8s\",rank=\"%d\"} ", metric, b->control->post[0].name, rank);
}

#define EACH_RANK(t, b, r)                                                                                             \
    for (const struct top_block *b = (t)->blocks.at; b < (t)->blocks.at + (t)->blocks.n; b++)                          \
        for (int r = 0; b->control && r < b->control->nranks; r++)

static void put_ring(FILE *to, const char *metric, const struct top *t)
{
    EACH_RANK(t, b, r)
    {
        put_of_rank(to, metric, b, r);
        fprintf(to, "%" PRIu64 "\n", top_shown(b, r).ring);
    }
}

static void put_late(FILE *to, const char *metric, const struct top *t)
{
    EACH_RANK(t, b, r)
    {
        put_of_rank(to, metric, b, r);
        fprintf(to, "%.2f\n", top_late(t, b, r));
    }
}

static void put_up(FILE *to, const char *metric, const struct top *t)
{
    EACH_RANK(t, b, r)
    {
        put_of_rank(to, metric, b, r);
        fprintf(to, "%d\n", top_rank_runs(t, b, r));
    }
}

static void put_sites(FILE *to, const char *metric, const struct top *t)
{
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].control) {
            const struct top_sites s = top_sites(&t->blocks.at[i]);
            const char *name = t->blocks.at[i].control->post[0].name;
            fprintf(to, "%s{communicator=\"%.8s\",way=\"ring\"} %u\n", metric, name, s.ring);
            fprintf(to, "%s{communicator=\"%.8s\",way=\"nccl\"} %u\n", metric, name, s.nccl);
            fprintf(to, "%s{communicator=\"%.8s\",way=\"none\"} %u\n", metric, name, s.none);
        }
}

void top_write_metrics(FILE *to, const struct top *t)
{
#define X(samples, name, type, help)                                                                                   \
    fprintf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);                                               \
    put_##samples(to, name, t);
#include "tools/top/metrics.def"
#undef X
}
