/* SPDX-License-Identifier: Apache-2.0 */
/* The tables for people. */
#include <inttypes.h>
#include <string.h>
#include "tools/top/top.h"

#define LATE 0.5 /* of the looks: the others wait for that rank */

static void put_process(FILE *to, const struct top *t, const struct top_process *p)
{
    uint64_t calls = 0, moved = 0;
    char idle[32] = "-", share[32] = "-";
    for (int i = 0; i < SLR_COLLECTIVES; i++) {
        calls += p->shown.calls[i];
        moved += p->shown.moved[i];
    }
    moved = moved < calls ? moved : calls; /* the process writes one after the other */
    if (calls)
        snprintf(share, sizeof share, "%.0f%%", 100 * (double)moved / (double)calls);
    if (top_idle_s(t, p) >= 0)
        snprintf(idle, sizeof idle, "%.1f s", top_idle_s(t, p));
    fprintf(to, "%8d %5d %11" PRIu64 " %11" PRIu64 " %5s %11" PRIu64 " %6" PRIu64 " MiB %10s  %s\n", (int)p->pid,
            p->rank, calls, moved, share, calls - moved, (p->shown.staging + p->shown.kept) >> 20, idle, p->name);
}

static void put_processes(FILE *to, const struct top *t)
{
    fprintf(to, "%8s %5s %11s %17s %11s %10s %10s  %s\n", "process", "rank", "calls", "over the ring", "with NCCL",
            "memory", "last call", "program");
    for (size_t i = 0; i < t->processes.n; i++)
        if (t->processes.at[i].nranks)
            put_process(to, t, &t->processes.at[i]);
}

/* The only one that is late at most looks. */
static int latest(const struct top *t, const struct top_block *b)
{
    int found = -1;
    for (int r = 0; r < b->control->nranks; r++)
        if (top_late(t, b, r) >= LATE) {
            if (found >= 0)
                return -1;
            found = r;
        }
    return found;
}

static void put_rank(FILE *to, const struct top *t, const struct top_block *b, int rank)
{
    struct slr_post *post = &b->control->post[rank];
    const struct top_process *p = top_process_of(t, b, rank);
    fprintf(to, "%8d %5d %11s %11" PRIu64 " %16.0f%%  %s%s\n", p ? (int)p->pid : (int)post->pid, rank, "",
            top_shown(b, rank).ring, 100 * top_late(t, b, rank), top_rank_state(t, b, rank),
            latest(t, b) == rank ? ", and the others wait for it" : "");
}

static void put_block(FILE *to, const struct top *t, const struct top_block *b)
{
    const struct top_sites s = top_sites(b);
    fprintf(to, "\ncommunicator %.8s: %d ranks, %s", b->control->post[0].name, b->control->nranks, top_block_state(b));
    if (s.ring + s.nccl + s.none)
        fprintf(to, "; call sites: %u over the ring, %u with NCCL, %u not settled", s.ring, s.nccl, s.none);
    fprintf(to, "\n%8s %5s %11s %11s %17s  %s\n", "process", "rank", "", "ring calls", "late", "state");
    for (int r = 0; r < b->control->nranks; r++)
        put_rank(to, t, b, r);
}

void top_write_text(FILE *to, const struct top *t)
{
    put_processes(to, t);
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].control)
            put_block(to, t, &t->blocks.at[i]);
    fprintf(to, "\nlate: at how many of %u looks another rank's device had come further\n", t->looks);
}
