/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes ran together: they share a communicator, or their logs overlap in time on one
 * host. A process without a communicator (a launcher, a helper) belongs to the run that is nearest
 * in time. */
#include <stdlib.h>
#include <string.h>
#include "tools/model/model_tables.h"

static uint32_t find_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

static void unite(uint32_t *parent, uint32_t a, uint32_t b)
{
    a = find_root(parent, a);
    b = find_root(parent, b);
    parent[a > b ? a : b] = a < b ? a : b;
}

static const struct model *sorting; /* qsort passes no context */

static int by_host_and_time(const void *x, const void *y)
{
    const struct process *a = &sorting->processes.at[*(const uint32_t *)x];
    const struct process *b = &sorting->processes.at[*(const uint32_t *)y];
    int host = strcmp(a->host, b->host);
    if (host)
        return host;
    return a->first_ts < b->first_ts ? -1 : a->first_ts > b->first_ts;
}

static void unite_overlapping(const struct model *m, uint32_t *parent, const uint32_t *order)
{
    uint32_t open = order[0]; /* of those before, the one whose log goes on longest */
    for (size_t k = 1; k < m->processes.n; k++) {
        const struct process *p = &m->processes.at[order[k]], *q = &m->processes.at[open];
        bool same_host = p->host == q->host;
        if (same_host && p->first_ts <= q->last_ts)
            unite(parent, order[k], open);
        if (!same_host || p->last_ts > q->last_ts)
            open = order[k];
    }
}

static void unite_by_communicator(const struct model *m, uint32_t *parent, bool *has_comm)
{
    for (size_t i = 0; i < m->comms.n; i++) {
        const struct comm *c = &m->comms.at[i];
        for (size_t k = 0; k < c->members.n; k++) {
            uint32_t p = m->members.at[c->members.at[k]].process;
            has_comm[p] = true;
            unite(parent, p, m->members.at[c->members.at[0]].process);
        }
    }
}

static int64_t distance(const struct process *a, const struct process *b)
{
    return a->first_ts > b->first_ts ? a->first_ts - b->first_ts : b->first_ts - a->first_ts;
}

static void unite_lonely(const struct model *m, uint32_t *parent, bool *has_comm)
{
    for (uint32_t i = 0; i < m->processes.n; i++) /* a group has one as soon as one of its processes has one */
        if (has_comm[i])
            has_comm[find_root(parent, i)] = true;
    for (uint32_t i = 0; i < m->processes.n; i++) {
        uint32_t nearest = MODEL_NONE;
        if (has_comm[find_root(parent, i)])
            continue;
        for (uint32_t k = 0; k < m->processes.n; k++)
            if (has_comm[k] && (nearest == MODEL_NONE || distance(&m->processes.at[i], &m->processes.at[k]) <
                                                             distance(&m->processes.at[i], &m->processes.at[nearest])))
                nearest = k;
        if (nearest == MODEL_NONE)
            nearest = 0;
        unite(parent, i, nearest);
        has_comm[find_root(parent, i)] = has_comm[nearest];
    }
}

static int64_t on_wall(const struct process *p)
{
    return p->first_ts + p->wall_offset;
}

static int by_wall(const void *x, const void *y)
{
    int64_t a = on_wall(&sorting->processes.at[*(const uint32_t *)x]);
    int64_t b = on_wall(&sorting->processes.at[*(const uint32_t *)y]);
    return a < b ? -1 : a > b;
}

/* In order of time. `order` holds all processes. */
static void make_runs(struct model *m, uint32_t *parent, uint32_t *order)
{
    qsort(order, m->processes.n, sizeof *order, by_wall);
    for (uint32_t k = 0; k < m->processes.n; k++) {
        uint32_t i = order[k];
        struct process *p = &m->processes.at[i], *root = &m->processes.at[find_root(parent, i)];
        if (root->run == MODEL_NONE) {
            root->run = (uint32_t)m->runs.n;
            vec_push(&m->runs, ((struct run){.first_ts = INT64_MAX}));
        }
        p->run = root->run;
        vec_push(&m->runs.at[p->run].processes, i);
    }
    for (uint32_t i = 0; i < m->comms.n; i++) {
        struct comm *c = &m->comms.at[i];
        c->run = m->processes.at[m->members.at[c->members.at[0]].process].run;
        vec_push(&m->runs.at[c->run].comms, i);
    }
}

/* Another host's clock, told by the wall clocks of both: the first process of the run gives the
 * time. */
static void shift_member(struct model *m, struct member *b)
{
    struct process *p = &m->processes.at[b->process];
    const struct process *first = &m->processes.at[m->runs.at[p->run].processes.at[0]];
    int64_t shift = p->wall_offset - first->wall_offset;
    if (p->host == first->host || p->wall_offset == 0 || first->wall_offset == 0)
        return;
    for (size_t i = 0; i < b->gathers.n; i++)
        b->gathers.at[i].begin += shift, b->gathers.at[i].end += shift;
    for (size_t i = 0; i < b->scatters.n; i++)
        b->scatters.at[i].begin += shift, b->scatters.at[i].end += shift;
    for (size_t i = 0; i < b->spans.n; i++)
        b->spans.at[i].begin += shift, b->spans.at[i].end += shift;
    for (size_t i = 0; i < b->collectives.n; i++)
        b->collectives.at[i].begin += shift, b->collectives.at[i].end += shift;
}

static bool holds_several(const struct model *m, uint32_t process)
{
    for (size_t i = 0; i < m->comms.n; i++) {
        unsigned n = 0;
        for (size_t k = 0; k < m->comms.at[i].members.n; k++)
            n += m->members.at[m->comms.at[i].members.at[k]].process == process;
        if (n > 1)
            return true;
    }
    return false;
}

/* The rank of a member: of its process, or, where one process has several devices, of its
 * device. */
static uint32_t rank_of(struct model *m, const struct member *b, bool several)
{
    const struct process *p = &m->processes.at[b->process];
    int32_t number = several || p->rank < 0 ? b->crank : p->rank;
    for (uint32_t i = 0; i < m->ranks.n; i++) {
        const struct rank *r = &m->ranks.at[i];
        bool same = b->device && r->device ? r->device == b->device : r->number == number;
        if (r->process == b->process && (!several || same))
            return i;
    }
    vec_push(&m->ranks, ((struct rank){.process = b->process, .run = p->run, .number = number}));
    return (uint32_t)m->ranks.n - 1;
}

static void find_ranks(struct model *m)
{
    bool *several = tool_alloc(m->processes.n, sizeof *several);
    for (uint32_t i = 0; i < m->processes.n; i++)
        several[i] = holds_several(m, i);
    for (size_t i = 0; i < m->members.n; i++) {
        struct member *b = &m->members.at[i];
        b->rank = rank_of(m, b, several[b->process]);
        struct rank *r = &m->ranks.at[b->rank];
        r->device = r->device ? r->device : b->device;
        r->device_name = r->device_name ? r->device_name : b->device_name;
    }
    free(several);
}

static void label_rank(struct model *m, struct rank *r)
{
    const struct process *p = &m->processes.at[r->process];
    bool alone = r->number >= 0;
    for (size_t i = 0; i < m->ranks.n; i++)
        if (&m->ranks.at[i] != r && m->ranks.at[i].run == r->run && m->ranks.at[i].number == r->number)
            alone = false;
    char label[96];
    if (alone)
        snprintf(label, sizeof label, "rank %d", r->number);
    else if (r->number >= 0)
        snprintf(label, sizeof label, "rank %d of pid %lld", r->number, (long long)p->pid);
    else
        snprintf(label, sizeof label, "pid %lld", (long long)p->pid);
    r->label = model_intern(m, label);
}

static int by_number(const void *x, const void *y)
{
    const struct rank *a = &sorting->ranks.at[*(const uint32_t *)x], *b = &sorting->ranks.at[*(const uint32_t *)y];
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return *(const uint32_t *)x < *(const uint32_t *)y ? -1 : 1;
}

static int by_rank(const void *x, const void *y)
{
    const struct process *a = &sorting->processes.at[*(const uint32_t *)x];
    const struct process *b = &sorting->processes.at[*(const uint32_t *)y];
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static void describe_run(struct model *m, struct run *r)
{
    for (size_t i = 0; i < r->processes.n; i++) {
        const struct process *p = &m->processes.at[r->processes.at[i]];
        if (p->first_ts < r->first_ts) {
            r->first_ts = p->first_ts;
            r->wall = p->wall_offset ? on_wall(p) : 0;
        }
        r->last_ts = p->last_ts > r->last_ts ? p->last_ts : r->last_ts;
    }
    qsort(r->processes.at, r->processes.n, sizeof *r->processes.at, by_rank);
    if (r->ranks.n > 1)
        qsort(r->ranks.at, r->ranks.n, sizeof *r->ranks.at, by_number);
}

void model_find_runs(struct model *m)
{
    if (m->processes.n == 0)
        return;
    uint32_t *parent = tool_alloc(m->processes.n, sizeof *parent);
    uint32_t *order = tool_alloc(m->processes.n, sizeof *order);
    bool *has_comm = tool_alloc(m->processes.n, sizeof *has_comm);
    for (uint32_t i = 0; i < m->processes.n; i++)
        parent[i] = order[i] = i;
    sorting = m;
    qsort(order, m->processes.n, sizeof *order, by_host_and_time);
    unite_by_communicator(m, parent, has_comm);
    unite_overlapping(m, parent, order);
    unite_lonely(m, parent, has_comm);
    make_runs(m, parent, order);
    for (size_t i = 0; i < m->members.n; i++)
        shift_member(m, &m->members.at[i]);
    find_ranks(m);
    for (uint32_t i = 0; i < m->ranks.n; i++) {
        label_rank(m, &m->ranks.at[i]);
        vec_push(&m->runs.at[m->ranks.at[i].run].ranks, i);
    }
    for (size_t i = 0; i < m->runs.n; i++)
        describe_run(m, &m->runs.at[i]);
    free(parent);
    free(order);
    free(has_comm);
}

bool run_is_software(const struct model *m, const struct run *r)
{
    for (size_t i = 0; i < r->ranks.n; i++) {
        const char *name = m->ranks.at[r->ranks.at[i]].device_name;
        if (name && strstr(name, "softgpu"))
            return true;
    }
    return false;
}
