/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites whose ways are tried, and their times, in words. */
#include "tools/report/report.h"

void report_each_member(const struct report *r, report_member_fn fn, void *ctx)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        for (size_t k = 0; k < c->members.n; k++)
            fn(ctx, c, &r->m->members.at[c->members.at[k]]);
    }
}

const char *report_trial_ms(char *buf, double ms)
{
    int digits = ms < 0.99995 ? 4 : ms < 9.9995 ? 3 : ms < 99.995 ? 2 : 1;
    if (ms < 0.00005)
        snprintf(buf, TRIAL_MS, "-");
    else
        snprintf(buf, TRIAL_MS, "%.*f", digits, ms);
    return buf;
}

/* a, b, ... z, 27, ... */
static void put_letter(char *buf, size_t size, size_t n)
{
    if (n < 26)
        snprintf(buf, size, " (%c)", (char)('a' + n));
    else
        snprintf(buf, size, " (%zu)", n + 1);
}

const char *report_trial_site(char *buf, const struct member *b, uint32_t number)
{
    const struct trial_site *s = &b->trial_sites.at[number];
    char bytes[FORM_ROOM], letter[FORM_ROOM] = "";
    size_t before = 0, all = 0;
    for (size_t i = 0; i < b->trial_sites.n; i++)
        if (b->trial_sites.at[i].shard == s->shard && b->trial_sites.at[i].op == s->op) {
            before += i < number;
            all++;
        }
    if (all > 1)
        put_letter(letter, sizeof letter, before);
    const bool gather = s->op == SLR_ALL_GATHER;
    snprintf(buf, TRIAL_SITE, "%s%s%s%s", form_bytes(bytes, (double)s->shard), letter, gather ? "" : ", ",
             gather ? "" : slr_collectives[s->op].words);
    return buf;
}

/* Texts are interned. */
bool report_trials_alike(const struct trial *a, const struct trial *b)
{
    return a->number == b->number && a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch &&
           a->trans == b->trans && a->type == b->type && a->gathered == b->gathered;
}

double report_trial_parts(const struct trial *t, uint64_t parts)
{
    for (unsigned i = 0; i < t->ways; i++)
        if (t->way[i].parts == parts)
            return t->way[i].ms;
    return -1;
}

double report_trial_ring(const struct trial *t)
{
    return t->m && t->parts ? report_trial_parts(t, t->parts) : t->ring_ms;
}
