/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: staging, blocks that were kept, handles of peers' memory. */
#include "tools/report/report.h"

static void put_rank(struct table *t, const struct report *r, uint32_t process, double staging)
{
    const struct process *p = &r->m->processes.at[process];
    char buf[4][FORM_ROOM];
    table_cell(t, "%s", form_bytes(buf[3], staging + (double)p->summary[F_KEPT_BYTES]));
    table_cell(t, "%s", form_bytes(buf[0], staging));
    table_cell(t, "%s", form_bytes(buf[1], (double)p->summary[F_PEAK_BYTES]));
    table_cell(t, "%s", form_bytes(buf[2], (double)p->summary[F_KEPT_BYTES]));
    table_cell(t, "%lld / %lld", (long long)p->summary[F_HITS], (long long)p->summary[F_MISSES]);
    table_cell(t, "%lld / %lld", (long long)p->summary[F_EVICTIONS], (long long)p->summary[F_TRIMS]);
    table_cell(t, "%lld", (long long)p->summary[F_MAPPED]);
    table_cell(t, "%lld / %lld", (long long)p->summary[F_IMPORTS], (long long)p->summary[F_IMPORT_HITS]);
}

static double staging_of(const struct report *r, uint32_t process)
{
    double sum = 0;
    for (size_t i = 0; i < r->m->members.n; i++)
        if (r->m->members.at[i].process == process)
            sum += (double)r->m->members.at[i].staging_bytes;
    return sum;
}

static void put_name(struct table *t, const struct report *r, uint32_t process)
{
    const struct rank *first = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < r->run->ranks.n; i++) {
        const struct rank *k = &r->m->ranks.at[r->run->ranks.at[i]];
        if (k->process == process && n++ == 0)
            first = k;
    }
    if (n > 1)
        table_cell(t, "%s and %u more", first->label, n - 1);
    else if (first)
        table_cell(t, "%s", first->label);
    else
        table_cell(t, "pid %lld", (long long)r->m->processes.at[process].pid);
}

static void put_comm(struct table *t, const struct report *r, const struct comm *c)
{
    char buf[FORM_ROOM];
    double staging = 0, exported = 0, mapped = 0;
    for (size_t i = 0; i < c->members.n; i++) {
        const struct member *b = &r->m->members.at[c->members.at[i]];
        staging += (double)b->staging_bytes;
        exported += (double)b->exported_bytes;
        mapped += (double)b->mapped_bytes;
    }
    if (staging + exported + mapped <= 0)
        return;
    table_cell(t, "%s", c->name);
    table_cell(t, "%s", form_bytes(buf, staging));
    table_cell(t, "%s", form_bytes(buf, exported));
    table_cell(t, "%s", form_bytes(buf, mapped));
}

static void put_comms(struct report *r)
{
    static const struct column columns[] = {{"communicator, all its ranks", false, false},
                                            {"staging", true, false},
                                            {"blocks offered", true, false},
                                            {"peers' blocks mapped", true, false}};
    struct table t = {.columns = columns, .n = 4};
    for (size_t i = 0; i < r->run->comms.n && i < 100; i++)
        put_comm(&t, r, &r->m->comms.at[r->run->comms.at[i]]);
    if (t.cells.n > 0)
        out_table(r->o, &t);
}

void report_memory(struct report *r)
{
    static const struct column columns[] = {
        {"process of", false, false},       {"held, all", true, false},     {"staging", true, false},
        {"blocks, peak", true, false},      {"kept at end", true, false},   {"hits / misses", true, false},
        {"evictions / trims", true, false}, {"peers' blocks", true, false}, {"imports / found open", true, false}};
    struct table t = {.columns = columns, .n = 9};
    for (size_t i = 0; i < r->run->processes.n; i++) {
        uint32_t p = r->run->processes.at[i];
        double staging = staging_of(r, p);
        if (!r->m->processes.at[p].has_blocks && !r->m->processes.at[p].has_summary && staging <= 0)
            continue;
        put_name(&t, r, p);
        put_rank(&t, r, p, staging);
    }
    if (t.cells.n == 0)
        return;
    out_section(r->o, "memory", "Memory");
    out_say(r->o,
            "held: what slipring has in the end, staging and what it keeps. staging: slots of all communicators, at "
            "their first calls. blocks: device memory that slipring keeps "
            "when the program frees it; hits are allocations that were served from it. peers' blocks: how often a "
            "block of a "
            "peer became accessible; imports are handles that were opened.");
    out_table(r->o, &t);
    put_comms(r);
}
