/* SPDX-License-Identifier: Apache-2.0 */
/* Lines `tried`. */
#include <stdlib.h>
#include <string.h>
#include "tools/model/model_tables.h"

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "2:0.1744,3:0.1887", or "none". False: it is neither. */
static bool read_ways(struct trial *t, const char *at)
{
    char *end;
    if (strcmp(at, "none") == 0)
        return true;
    for (; t->ways < TRIAL_WAYS && digit(*at); at = end + 1) {
        uint64_t parts = strtoull(at, &end, 10);
        if (*end != ':' || !digit(end[1]))
            return false;
        t->way[t->ways].parts = parts;
        t->way[t->ways++].ms = strtod(end + 1, &end);
        if (*end != ',')
            return *end == '\0';
    }
    return false;
}

static bool usable(struct model *m, struct trial *t, const struct log_record *r)
{
    t->duel = r->has[F_STAGE] && strcmp(r->text[F_STAGE], "duel") == 0;
    t->nccl = strcmp(r->text[F_BY], "nccl") == 0;
    t->open = strcmp(r->text[F_BY], "duel") == 0;
    if (!t->nccl && !t->open && strcmp(r->text[F_BY], "ring") != 0) {
        log_problem(m->reader, r->line, "field \"by\" is none that is known, expected ring, nccl or duel");
        return false;
    }
    if (r->has[F_STAGE] && !t->duel && strcmp(r->text[F_STAGE], "ways") != 0) {
        log_problem(m->reader, r->line, "field \"stage\" is none that is known, expected ways or duel");
        return false;
    }
    if (r->has[F_PARTS_MS] && !read_ways(t, r->text[F_PARTS_MS])) {
        log_problem(m->reader, r->line,
                    "field \"parts_ms\" is no list of times, expected none, or N:MS,N:MS of up to %d", TRIAL_WAYS);
        return false;
    }
    return true;
}

void model_add_trial(struct model *m, struct member *b, const struct log_record *r)
{
    struct trial t = {.ts = r->num[F_TS],
                      .scatter = r->has[F_OP] && strcmp(r->text[F_OP], "reducescatter") == 0,
                      .shard = (uint64_t)r->num[F_SHARD],
                      .m = (uint64_t)r->num[F_M],
                      .n = (uint64_t)r->num[F_N],
                      .k = (uint64_t)r->num[F_K],
                      .calls = (uint64_t)r->num[F_CALLS],
                      .parts = (uint64_t)r->num[F_PARTS],
                      .batch = (uint64_t)r->num[F_BATCH],
                      .trans = model_intern(m, r->text[F_TRANS]),
                      .type = model_intern(m, r->text[F_TYPE]),
                      .gathered = model_intern(m, r->text[F_GATHERED]),
                      .clock = model_intern(m, r->text[F_MEASURED_BY]),
                      .ring_ms = (double)r->num[F_RING_MS] / 1e9,
                      .nccl_ms = (double)r->num[F_NCCL_MS] / 1e9};
    if (usable(m, &t, r))
        vec_push(&b->trials, t);
}
