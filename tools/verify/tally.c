/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "tools/log/log_tail.h"
#include "tools/verify/verify.h"

/* -1: none. */
static long long number(const json_t *event, const char *name)
{
    json_int_t n;
    return log_number(event, name, 0, INT64_MAX, &n) ? (long long)n : -1;
}

static unsigned long long count(const json_t *event, const char *name)
{
    long long n = number(event, name);
    return n > 0 ? (unsigned long long)n : 0;
}

/* SLR_R_COUNT: a reason of a later version. */
static enum slr_reason reason_of(const json_t *event)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (strcmp(log_text(event, "reason"), slr_reason_name((enum slr_reason)r)) == 0)
            return (enum slr_reason)r;
    return SLR_R_COUNT;
}

static enum kind kind_of(const json_t *event)
{
    return strcmp(log_text(event, "op"), "reducescatter") == 0 ? SCATTERS : GATHERS;
}

static void differs(struct tally *t, const json_t *event)
{
    const unsigned long long before = tally_sum(t->differing);
    const enum kind kind = kind_of(event);
    t->compared[kind]++;
    if (before < VERIFY_LISTED) {
        struct difference *d = &t->first[before];
        d->kind = kind;
        snprintf(d->host, sizeof d->host, "%s", log_text(event, "host"));
        snprintf(d->comm, sizeof d->comm, "%s", log_text(event, "comm"));
        d->rank = number(event, "crank");
        d->call = number(event, "call");
        d->shard = number(event, "shard");
        d->offset = number(event, "offset");
        d->owner = number(event, "owner");
        snprintf(d->check, sizeof d->check, "%s", log_text(event, "check"));
        snprintf(d->have, sizeof d->have, "%s", log_text(event, "have"));
        snprintf(d->want, sizeof d->want, "%s", log_text(event, "want"));
    }
    t->differing[kind]++;
}

void tally_event(void *tally, const json_t *event)
{
    struct tally *t = tally;
    const char *what = log_text(event, "event");
    enum slr_reason r = reason_of(event);
    if (!strcmp(what, "verified")) {
        t->compared[kind_of(event)]++;
    } else if (!strcmp(what, "verify_differs")) {
        differs(t, event);
    } else if (!strcmp(what, "not_verified")) {
        t->skipped++;
    } else if (!strcmp(what, "communicator") && !strcmp(log_text(event, "decision"), "pass") && r < SLR_R_COUNT) {
        t->refused[r]++;
    } else if (!strcmp(what, "summary")) {
        t->ended++;
        t->calls[GATHERS] += count(event, "calls");
        t->substituted[GATHERS] += count(event, "substituted");
        t->calls[SCATTERS] += count(event, "scatters");
        t->substituted[SCATTERS] += count(event, "scatters_substituted");
    } else if (!strcmp(what, "count") && r < SLR_R_COUNT) {
        t->reason[GATHERS][r] += count(event, "n");
    } else if (!strcmp(what, "scatter_count") && r < SLR_R_COUNT) {
        t->reason[SCATTERS][r] += count(event, "n");
    }
}
