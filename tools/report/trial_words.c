/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites whose ways are tried, and their times, in words. */
#include <inttypes.h>
#include <string.h>
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

const char *report_call_site(char *buf, const struct sites *s, uint32_t comm, uint32_t number)
{
    const struct comm *c = &s->m->comms.at[comm];
    const struct call_site *site = &c->sites.at[number];
    char bytes[FORM_ROOM], letter[FORM_ROOM] = "";
    if (c->sites.at[site->first].alike > 1)
        put_letter(letter, sizeof letter, site->nth);
    snprintf(buf, CALL_SITE, "#%" PRIu32 ": %s, %s%s", call_site_number(s, comm, number),
             slr_collectives[site->what.op].words, form_bytes(bytes, (double)site->what.shard), letter);
    return buf;
}

const char *report_trial_site(char *buf, const struct sites *s, const struct member *b, uint32_t number)
{
    return report_call_site(buf, s, b->comm, b->call_sites.at[number]);
}

const char *site_label(const struct sites *s, size_t i, char *buf, size_t size)
{
    char name[CALL_SITE];
    snprintf(buf, size, "%s", report_call_site(name, s, s->list.at[i].comm, s->list.at[i].number));
    return buf;
}

const char *report_reason_words(char *buf, size_t size, const char *reason)
{
    const char *words = reason_meaning(reason);
    size_t n = words ? strcspn(words, "(:;") : 0;
    while (n && words[n - 1] == ' ')
        n--;
    snprintf(buf, size, "%.*s", (int)(words ? n : strlen(reason)), words ? words : reason);
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
