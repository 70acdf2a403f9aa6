/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that reach the calls late; else times of one rank at a call site against the other ranks' times there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "tools/report/advice.h"

enum { FEW = 8 };                               /* of fewer calls a median says nothing */
static const double share = 0.25, least = 10e3; /* away by more than a quarter, and by more than 10 us */

/* The median of all values but one. */
static double median_of_others(const int64_t *value, size_t n, size_t without)
{
    struct times rest = {0};
    for (size_t i = 0; i < n; i++)
        if (i != without)
            vec_push(&rest, value[i]);
    double m = (double)percentile(&rest, 50);
    vec_free(&rest);
    return m;
}

/* Of two the slower is named. */
static bool is_away(const int64_t *value, size_t n, size_t i)
{
    double others = median_of_others(value, n, i), off = (double)value[i] - others, far = off < 0 ? -off : off;
    return (off >= 0 || n > 2) && far >= least && far >= share * others;
}

/* When most ranks are away from the others none of them is odd: one row says so. */
static bool all_differ(struct report *r, struct table *t, size_t site, const int64_t *value, const char *what)
{
    size_t n = r->sites.list.at[site].ranks.n, away = 0;
    int64_t low = value[0], high = value[0];
    for (size_t i = 0; i < n; i++) {
        away += is_away(value, n, i);
        low = value[i] < low ? value[i] : low;
        high = value[i] > high ? value[i] : high;
    }
    if (n < 3 || away * 2 <= n)
        return false;
    char where[100], range[80], a[FORM_ROOM], b[FORM_ROOM];
    site_label(&r->sites, site, where, sizeof where);
    snprintf(range, sizeof range, "%s to %s", form_time(a, (double)low), form_time(b, (double)high));
    differ_row(t, "all ranks", where, what, range, "-");
    return true;
}

/* `named`: ranks that need not be named again for what follows from the first. */
static void compare(struct report *r, struct table *t, size_t site, const int64_t *value, const char *what, bool *named)
{
    const struct site *s = &r->sites.list.at[site];
    size_t n = s->ranks.n;
    if (!memchr(named, false, n))
        return;
    if (!memchr(named, true, n) && all_differ(r, t, site, value, what)) {
        memset(named, true, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double others = median_of_others(value, n, i), off = (double)value[i] - others;
        char where[100], its[80], theirs[FORM_ROOM], buf[FORM_ROOM];
        if (named[i] || !is_away(value, n, i))
            continue;
        named[i] = true;
        site_label(&r->sites, site, where, sizeof where);
        form_time(buf, (double)value[i]);
        if (others > 0)
            snprintf(its, sizeof its, "%s (%+.0f%%)", buf, 100 * off / others);
        else
            snprintf(its, sizeof its, "%s", buf);
        differ_row(t, report_rank_label(r, &r->m->members.at[s->ranks.at[i].member]), where, what, its,
                   form_time(theirs, others));
    }
}

/* A late rank makes the others wait: their times are its, and are not told again. */
static bool waits(const struct comm *c, const struct late_list *late, uint32_t member)
{
    bool own = false;
    for (size_t i = 0; i < late->n; i++)
        own |= c->members.at[late->at[i].who] == member;
    return late->n > 0 && !own;
}

static void times_at(struct report *r, struct table *t, size_t site, const struct late_list *late)
{
    const struct site *s = &r->sites.list.at[site];
    int64_t *value = tool_alloc(s->ranks.n, sizeof *value);
    bool *named = tool_alloc(s->ranks.n, sizeof *named);
    for (size_t i = 0; i < s->ranks.n; i++) {
        value[i] = s->ranks.at[i].median;
        named[i] = waits(&r->m->comms.at[s->comm], late, s->ranks.at[i].member);
    }
    compare(r, t, site, value, "gather time, median", named);
    for (size_t i = 0; i < s->ranks.n; i++)
        value[i] = s->ranks.at[i].exposed_median;
    compare(r, t, site, value, "exposed, median", named);
    free(named);
    free(value);
}

/* How often each reason ended the gathers of a site: on one rank another than on the others. */
static void endings_at(struct report *r, struct table *t, size_t site)
{
    const struct site *s = &r->sites.list.at[site];
    for (size_t i = 0; i < s->ranks.n; i++)
        for (size_t k = 0; k < s->ranks.at[i].ended.n; k++) {
            const struct reason_count *own = &s->ranks.at[i].ended.at[k];
            uint64_t others = 0;
            for (size_t j = 0; j < s->ended.n; j++)
                if (s->ended.at[j].reason == own->reason)
                    others = s->ended.at[j].n - own->n;
            if (others > 0)
                continue;
            char where[100], what[300], words[200], its[40];
            site_label(&r->sites, site, where, sizeof where);
            snprintf(what, sizeof what, "gathers that ended so: %s (%.60s)",
                     report_reason_words(words, sizeof words, own->reason), own->reason);
            snprintf(its, sizeof its, "%" PRIu64 " times", own->n);
            differ_row(t, report_rank_label(r, &r->m->members.at[s->ranks.at[i].member]), where, what, its, "never");
        }
}

static void calls_at(struct report *r, struct table *t, size_t site)
{
    const struct site *s = &r->sites.list.at[site];
    const struct comm *c = &r->m->comms.at[s->comm];
    for (size_t i = 0; i < s->ranks.n; i++) {
        char where[100], its[40], most[60];
        if (s->ranks.at[i].calls == s->traced || c->members.n < 2)
            continue;
        site_label(&r->sites, site, where, sizeof where);
        snprintf(its, sizeof its, "%" PRIu64, s->ranks.at[i].calls);
        snprintf(most, sizeof most, "up to %" PRIu64, s->traced);
        differ_row(t, report_rank_label(r, &r->m->members.at[s->ranks.at[i].member]), where, "traced calls", its, most);
    }
}

static void arrivals(struct report *r, struct table *t, const struct comm *c, const struct late_list *late)
{
    for (size_t i = 0; i < late->n; i++) {
        const struct late *l = &late->at[i];
        char where[60], its[80], buf[FORM_ROOM];
        snprintf(where, sizeof where, "communicator %.16s", c->name);
        snprintf(its, sizeof its, "%s later, median", form_time(buf, l->median));
        differ_row(t, report_rank_label(r, &r->m->members.at[c->members.at[l->who]]), where, "reaches the calls", its,
                   "-");
    }
}

static void differ_at(struct report *r, struct table *t, size_t site, const struct late_list *late)
{
    if (r->sites.list.at[site].ranks.n < 2)
        return;
    calls_at(r, t, site);
    if (r->sites.list.at[site].traced >= FEW)
        times_at(r, t, site, late);
    endings_at(r, t, site);
}

void differ_times(struct report *r, struct table *t)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const uint32_t comm = r->run->comms.at[i];
        struct late_list late = {0};
        late_find(r, &r->m->comms.at[comm], &late);
        arrivals(r, t, &r->m->comms.at[comm], &late);
        for (size_t k = 0; k < r->sites.list.n; k++)
            if (r->sites.list.at[k].comm == comm)
                differ_at(r, t, k, &late);
        vec_free(&late);
    }
}
