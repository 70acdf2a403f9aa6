#include <string.h>
#include "tools/verify/verify.h"

static long long number(const json_t *event, const char *name)
{
    const json_t *value = json_object_get(event, name);
    return json_is_integer(value) ? (long long)json_integer_value(value) : -1;
}

static unsigned long long count(const json_t *event, const char *name)
{
    long long value = number(event, name);
    return value > 0 ? (unsigned long long)value : 0;
}

static const char *text(const json_t *event, const char *name)
{
    const char *value = json_string_value(json_object_get(event, name));
    return value ? value : "";
}

/* SLR_R_COUNT: a reason of a later version. */
static enum slr_reason reason_of(const json_t *event)
{
    for (int r = 0; r < SLR_R_COUNT; r++)
        if (strcmp(text(event, "reason"), slr_reason_name((enum slr_reason)r)) == 0)
            return (enum slr_reason)r;
    return SLR_R_COUNT;
}

static void differs(struct tally *t, const json_t *event)
{
    t->compared++;
    if (t->differing < VERIFY_LISTED) {
        struct difference *d = &t->first[t->differing];
        snprintf(d->host, sizeof d->host, "%s", text(event, "host"));
        snprintf(d->comm, sizeof d->comm, "%s", text(event, "comm"));
        d->rank = number(event, "crank");
        d->call = number(event, "call");
        d->shard = number(event, "shard");
        d->offset = number(event, "offset");
        d->owner = number(event, "owner");
    }
    t->differing++;
}

void tally_event(struct tally *t, const json_t *event)
{
    const char *what = text(event, "event");
    enum slr_reason r = reason_of(event);
    if (!strcmp(what, "verified")) {
        t->compared++;
    } else if (!strcmp(what, "verify_differs")) {
        differs(t, event);
    } else if (!strcmp(what, "not_verified")) {
        t->skipped++;
    } else if (!strcmp(what, "communicator") && !strcmp(text(event, "decision"), "pass") && r < SLR_R_COUNT) {
        t->refused[r]++;
    } else if (!strcmp(what, "summary")) {
        t->ended++;
        t->calls += count(event, "calls");
        t->substituted += count(event, "substituted");
    } else if (!strcmp(what, "count") && r < SLR_R_COUNT) {
        t->reason[r] += count(event, "n");
    }
}
