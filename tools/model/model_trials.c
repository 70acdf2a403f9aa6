/* SPDX-License-Identifier: Apache-2.0 */
/* Lines `tried`, `duel`, `duel_of` and `site_way`. */
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

bool model_context(struct model *m, const struct log_record *r, uint64_t *context)
{
    const char *text = r->has[F_CONTEXT] ? r->text[F_CONTEXT] : "0";
    const size_t len = strspn(text, "0123456789abcdef");
    *context = strtoull(text, NULL, 16);
    if (len > 0 && len <= 16 && !text[len])
        return true;
    log_problem(m->reader, r->line, "field \"context\" is no number, expected up to 16 hexadecimal digits");
    return false;
}

static bool read_site(struct model *m, struct trial_site *s, const struct log_record *r)
{
    *s = (struct trial_site){.shard = (uint64_t)r->num[F_SHARD], .op = model_op(r)};
    return model_context(m, r, &s->context);
}

/* `third`: what `by` may be besides ring and nccl; or NULL. */
static bool known_by(struct model *m, const struct log_record *r, const char *third)
{
    const char *by = r->text[F_BY];
    if (strcmp(by, "ring") == 0 || strcmp(by, "nccl") == 0 || (third && strcmp(by, third) == 0))
        return true;
    log_problem(m->reader, r->line, "field \"by\" is none that is known, expected ring%s nccl%s%s", third ? "," : " or",
                third ? " or " : "", third ? third : "");
    return false;
}

static bool usable(struct model *m, struct trial *t, const struct log_record *r)
{
    t->duel = r->has[F_STAGE] && strcmp(r->text[F_STAGE], "duel") == 0;
    t->nccl = strcmp(r->text[F_BY], "nccl") == 0;
    t->open = strcmp(r->text[F_BY], "duel") == 0;
    if (!known_by(m, r, "duel"))
        return false;
    if (r->has[F_STAGE] && !t->duel && strcmp(r->text[F_STAGE], "ways") != 0) {
        log_problem(m->reader, r->line, "field \"stage\" is none that is known, expected ways or duel");
        return false;
    }
    if (r->has[F_PARTS_MS] && !read_ways(t, r->text[F_PARTS_MS])) {
        log_problem(m->reader, r->line,
                    "field \"parts_ms\" is no list of times, expected none, or N:MS,N:MS of up to %d", TRIAL_WAYS);
        return false;
    }
    return read_site(m, &t->site, r);
}

void model_add_trial(struct model *m, struct member *b, const struct log_record *r)
{
    struct trial t = {.ts = r->num[F_TS],
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

void model_add_duel(struct model *m, struct member *b, const struct log_record *r)
{
    if (known_by(m, r, r->num[F_SITES] == 0 ? "none" : "sites"))
        vec_push(&b->duels, ((struct duel){.ts = r->num[F_TS],
                                           .sites = (uint64_t)r->num[F_SITES],
                                           .calls = (uint64_t)r->num[F_CALLS],
                                           .ring_ms = (double)r->num[F_RING_MS] / 1e9,
                                           .nccl_ms = (double)r->num[F_NCCL_MS] / 1e9,
                                           .by = model_intern(m, r->text[F_BY])}));
}

static bool is_one_of(struct model *m, const struct log_record *r, const char *name, const char *is,
                      const char *const known[3])
{
    for (int i = 0; i < 3; i++)
        if (strcmp(is, known[i]) == 0)
            return true;
    log_problem(m->reader, r->line, "field \"%s\" is none that is known, expected %s, %s or %s", name, known[0],
                known[1], known[2]);
    return false;
}

void model_add_duel_of(struct model *m, struct member *b, const struct log_record *r)
{
    static const char *const of[] = {"pieces", "reducescatter", "allreduce"}, *const by[] = {"with", "without", "none"};
    if (is_one_of(m, r, "of", r->text[F_OF], of) && is_one_of(m, r, "by", r->text[F_BY], by))
        vec_push(&b->duels, ((struct duel){.ts = r->num[F_TS],
                                           .calls = (uint64_t)r->num[F_CALLS],
                                           .ring_ms = (double)r->num[F_WITH_MS] / 1e9,
                                           .nccl_ms = (double)r->num[F_WITHOUT_MS] / 1e9,
                                           .by = model_intern(m, r->text[F_BY]),
                                           .of = model_intern(m, r->text[F_OF])}));
}

void model_add_site_way(struct model *m, struct member *b, const struct log_record *r)
{
    struct site_way w = {.ts = r->num[F_TS],
                         .calls = (uint64_t)r->num[F_CALLS],
                         .over_ring = (uint64_t)r->num[F_OVER_RING],
                         .over_nccl = (uint64_t)r->num[F_OVER_NCCL],
                         .reason = model_intern(m, r->text[F_REASON]),
                         .nccl = strcmp(r->text[F_BY], "nccl") == 0};
    if (known_by(m, r, NULL) && read_site(m, &w.site, r))
        vec_push(&b->ways, w);
}

/* The number of a site; a new one at the end. */
static uint32_t number_of(struct member *b, const struct trial_site *s)
{
    for (size_t i = 0; i < b->trial_sites.n; i++) {
        const struct trial_site *known = &b->trial_sites.at[i];
        if (known->shard == s->shard && known->op == s->op && known->context == s->context)
            return (uint32_t)i;
    }
    vec_push(&b->trial_sites, *s);
    return (uint32_t)b->trial_sites.n - 1;
}

/* The first site of a size gets its context when that has come often, and another one when the size's GEMMs come in
 * another form; lines before that have 0, or the old one. Of its lines site_way, in the order of the library's sites,
 * the first has what it is in the end. */
static uint64_t context_of(const struct member *b, const struct trial_site *s)
{
    const struct trial_site *first = NULL;
    for (size_t i = 0; i < b->ways.n; i++) {
        const struct trial_site *told = &b->ways.at[i].site;
        if (told->shard != s->shard || told->op != s->op)
            continue;
        if (told->context == s->context)
            return s->context;
        first = first ? first : told;
    }
    return first ? first->context : s->context;
}

/* A site has two lines site_way when its communicator is destroyed behind the end of the process: the last
 * is kept, at its site's number. */
void model_find_trial_sites(struct member *b)
{
    for (size_t i = 0; i < b->ways.n; i++) {
        struct site_way w = b->ways.at[i];
        w.number = number_of(b, &w.site);
        b->ways.at[w.number] = w;
    }
    b->ways.n = b->trial_sites.n;
    for (size_t i = 0; i < b->trials.n; i++) {
        b->trials.at[i].site.context = context_of(b, &b->trials.at[i].site);
        b->trials.at[i].number = number_of(b, &b->trials.at[i].site);
    }
}
