/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that reach the calls of a communicator later than the others, who wait for them: no way to move data hides
 * that. Times of several ranks compare on one host only. */
#include <inttypes.h>
#include "tools/report/advice.h"

enum { SAMPLE = 1000, RANKS_MOST = 128 };       /* calls that are looked at, about; of more ranks none are */
static const double worth = 0.01;               /* part of the run: less is not worth a word */
static const double share = 0.25, least = 10e3; /* of a mean gather, and 10 us: less is no lateness */

static bool one_host(const struct report *r, const struct comm *c)
{
    for (size_t i = 1; i < c->members.n; i++)
        if (r->m->processes.at[r->m->members.at[c->members.at[i]].process].host !=
            r->m->processes.at[r->m->members.at[c->members.at[0]].process].host)
            return false;
    return true;
}

/* Of one call of the rank `who`: how far it is behind the median of the others, and how long each of them has waited
 * for it, as the last one, in the mean. False: no other rank tells of the call. */
static bool look_at(const struct report *r, const struct comm *c, size_t who, const struct gather *g, double *behind,
                    double *waited)
{
    struct times others = {0};
    int64_t last = 0, wait = 0;
    for (size_t k = 0; k < c->members.n; k++) {
        const struct gather *h = k == who ? NULL : member_call(&r->m->members.at[c->members.at[k]], g->pass, g->call);
        if (!h)
            continue;
        const int64_t ahead = g->begin - h->begin;
        last = h->begin > last ? h->begin : last;
        wait += ahead <= 0 ? 0 : ahead < h->exposed ? ahead : h->exposed;
        vec_push(&others, h->begin);
    }
    const bool known = others.n > 0;
    *behind = (double)(g->begin - percentile(&others, 50));
    *waited = known && g->begin > last ? (double)wait / (double)others.n : 0;
    vec_free(&others);
    return known;
}

static void add_calls(const struct report *r, const struct comm *c, const struct gather *list, size_t n, bool pass,
                      double far, struct late *l, struct times *behind)
{
    const uint64_t every = r->m->members.at[c->members.at[l->who]].every;
    const size_t step = 1 + n / SAMPLE;
    for (size_t i = 0; i < n; i += step) {
        double off, waited;
        if (list[i].pass != pass || !look_at(r, c, l->who, &list[i], &off, &waited))
            continue;
        vec_push(behind, (int64_t)off);
        l->of++;
        l->calls += off >= far;
        l->cost += waited * (double)step * (double)(every ? every : 1);
    }
}

/* By the calls of the ring, or where there are none by those of NCCL. */
static bool is_late(const struct report *r, const struct comm *c, size_t who, struct late *l)
{
    const struct member *b = &r->m->members.at[c->members.at[who]];
    const double time = r->sites.ring_time > 0 ? r->sites.ring_time : r->sites.pass_time,
                 typical = r->sites.traced ? time / (double)r->sites.traced : 0,
                 far = share * typical > least ? share * typical : least;
    struct times behind = {0};
    *l = (struct late){.who = who};
    for (int pass = 0; pass < 2 && l->of == 0; pass++) {
        add_calls(r, c, b->gathers.at, b->gathers.n, pass, far, l, &behind);
        add_calls(r, c, b->scatters.at, b->scatters.n, pass, far, l, &behind);
    }
    l->median = (double)percentile(&behind, 50);
    vec_free(&behind);
    return l->median >= far && l->calls * 4 >= l->of * 3; /* else it is one rank now, and then another */
}

void late_find(const struct report *r, const struct comm *c, struct late_list *list)
{
    if (c->members.n > RANKS_MOST || !one_host(r, c))
        return;
    for (size_t i = 0; i < c->members.n; i++) {
        struct late l;
        if (is_late(r, c, i, &l))
            vec_push(list, l);
    }
}

void advise_late(struct report *r, struct advices *a)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        struct late_list list = {0};
        late_find(r, c, &list);
        for (size_t k = 0; k < list.n; k++) {
            const struct late *l = &list.at[k];
            char time[FORM_ROOM];
            if (l->cost < worth * (double)(r->run->last_ts - r->run->first_ts))
                continue;
            const char *label = report_rank_label(r, &r->m->members.at[c->members.at[l->who]]);
            const bool many = c->members.n > 2;
            advice_add(a, ADVICE_LATE, l->cost,
                       "%s comes late: %s behind the other%s (median), in %" PRIu64 " of %" PRIu64
                       " calls. The other%s wait%s for it, whatever moves the data. Look at what %s does before these "
                       "calls and the other%s not: more work, a slower GPU, input, output, other processes.",
                       label, form_time(time, l->median), many ? "s" : " rank", l->calls, l->of, many ? "s" : " rank",
                       many ? "" : "s", label, many ? "s do" : " rank does");
        }
        vec_free(&list);
    }
}
