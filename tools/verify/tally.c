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

static enum slr_collective_id kind_of(const json_t *event)
{
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        if (strcmp(log_text(event, "op"), slr_collectives[id].op) == 0)
            return (enum slr_collective_id)id;
    return SLR_ALL_GATHER;
}

/* What a line at the end counts the calls of, by reasons; SLR_COLLECTIVES: it is another line. */
static enum slr_collective_id counted_of(const char *what)
{
    int id = 0;
    while (id < SLR_COLLECTIVES && strcmp(what, slr_collectives[id].count) != 0)
        id++;
    return (enum slr_collective_id)id;
}

static void end(struct tally *t, const json_t *event)
{
    t->ended++;
    t->calls[SLR_ALL_GATHER] += count(event, "calls");
    t->substituted[SLR_ALL_GATHER] += count(event, "substituted");
    t->calls[SLR_REDUCE_SCATTER] += count(event, "scatters");
    t->substituted[SLR_REDUCE_SCATTER] += count(event, "scatters_substituted");
    t->calls[SLR_ALL_REDUCE] += count(event, "reduces");
    t->substituted[SLR_ALL_REDUCE] += count(event, "reduces_substituted");
}

static void differs(struct tally *t, const json_t *event)
{
    const unsigned long long before = tally_sum(t->differing);
    const enum slr_collective_id kind = kind_of(event);
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
        end(t, event);
    } else if (counted_of(what) < SLR_COLLECTIVES && r < SLR_R_COUNT) {
        t->reason[counted_of(what)][r] += count(event, "n");
    }
}
