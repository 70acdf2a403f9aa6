/* SPDX-License-Identifier: Apache-2.0 */
/* The same for programs. */
#include <inttypes.h>
#include "tools/common/json.h"
#include "tools/top/top.h"

static void put_count(struct json_writer *w, const char *key, uint64_t n)
{
    json_put_number(w, key, "%" PRIu64, n);
}

static void put_process(struct json_writer *w, const struct top *t, const struct top_process *p)
{
    const double idle = top_idle_s(t, p);
    json_put_open(w, NULL, "{");
    json_put_number(w, "pid", "%d", (int)p->pid);
    json_put_number(w, "rank", "%d", p->rank);
    json_put_text(w, "program", p->name);
    json_put_open(w, "collectives", "{");
    for (int i = 0; i < SLR_COLLECTIVES; i++) {
        json_put_open(w, slr_collectives[i].op, "{");
        put_count(w, "calls", p->shown.calls[i]);
        put_count(w, "ring", p->shown.moved[i]);
        json_put_close(w);
    }
    json_put_close(w);
    put_count(w, "staging_bytes", p->shown.staging);
    put_count(w, "kept_bytes", p->shown.kept);
    json_put_number(w, "idle_seconds", idle < 0 ? "null" : "%.3f", idle);
    json_put_close(w);
}

static void put_rank(struct json_writer *w, const struct top *t, const struct top_block *b, int rank)
{
    const struct top_process *p = top_process_of(t, b, rank);
    json_put_open(w, NULL, "{");
    json_put_number(w, "rank", "%d", rank);
    json_put_number(w, "pid", "%d", p ? (int)p->pid : (int)b->control->post[rank].pid);
    json_put_text(w, "state", top_rank_state(t, b, rank));
    put_count(w, "ring", top_shown(b, rank).ring);
    json_put_number(w, "late", "%.2f", top_late(t, b, rank));
    json_put_close(w);
}

static void put_block(struct json_writer *w, const struct top *t, const struct top_block *b)
{
    const struct top_sites s = top_sites(b);
    char name[9];
    snprintf(name, sizeof name, "%.8s", b->control->post[0].name);
    json_put_open(w, NULL, "{");
    json_put_text(w, "name", name);
    json_put_text(w, "state", top_block_state(b));
    json_put_open(w, "sites", "{");
    put_count(w, "ring", s.ring);
    put_count(w, "nccl", s.nccl);
    put_count(w, "none", s.none);
    json_put_close(w);
    json_put_open(w, "ranks", "[");
    for (int r = 0; r < b->control->nranks; r++)
        put_rank(w, t, b, r);
    json_put_close(w);
    json_put_close(w);
}

void top_write_json(FILE *to, const struct top *t)
{
    struct json_writer w = {.to = to};
    json_put_open(&w, NULL, "{");
    json_put_text(&w, "version", SLIPRING_VERSION);
    put_count(&w, "looks", t->looks);
    json_put_open(&w, "processes", "[");
    for (size_t i = 0; i < t->processes.n; i++)
        if (t->processes.at[i].nranks)
            put_process(&w, t, &t->processes.at[i]);
    json_put_close(&w);
    json_put_open(&w, "communicators", "[");
    for (size_t i = 0; i < t->blocks.n; i++)
        if (t->blocks.at[i].control)
            put_block(&w, t, &t->blocks.at[i]);
    json_put_close(&w);
    json_put_close(&w);
}
