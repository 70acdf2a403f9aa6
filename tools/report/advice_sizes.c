/* SPDX-License-Identifier: Apache-2.0 */
/* Calls below SLIPRING_MIN_BYTES: the value that has them tried, where they are worth it. */
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/advice.h"

/* Bytes of all ranks. Below the first the ring takes several times as long as NCCL, below the second it is rarely
 * faster (docs/measurements.md, Gathers alone); NCCL is then found to be faster. */
enum { WORTH = 64 << 10, RARE = 512 << 10 };

struct sizes {
    uint64_t least, most; /* of those that are worth it; 0: none */
    double cost;          /* ns of a rank in those that are worth it, as far as they were traced */
};

static bool is_small(const char *reason)
{
    return reason && strcmp(reason, slr_reason_name(SLR_R_TOO_SMALL)) == 0;
}

/* Whether a call of the collective, that is worth it, is among the shapes. */
static bool add_shapes(struct sizes *s, const struct comm *c, const struct shape *list, size_t n,
                       enum slr_collective_id op)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = list[i].shard * c->nranks;
        if (list[i].event != E_PASS || list[i].op != op || !is_small(list[i].reason) || bytes < WORTH)
            continue;
        any = true;
        s->least = !s->least || bytes < s->least ? bytes : s->least;
        s->most = bytes > s->most ? bytes : s->most;
    }
    return any;
}

/* Without the waits for late ranks. */
static double time_of_gathers(const struct report *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->sites.list.n; i++) {
        const struct site *s = &r->sites.list.at[i];
        const struct comm *c = &r->m->comms.at[s->comm];
        const uint64_t every = r->m->members.at[c->members.at[0]].every;
        for (size_t k = 0; k < s->ranks.n && s->pass && is_small(s->reason) && s->shard * c->nranks >= WORTH; k++)
            sum += (s->ranks.at[k].exposed_sum - s->ranks.at[k].late_sum) * (double)(every ? every : 1);
    }
    return sum;
}

/* What NCCL took for those of a member that were traced. Their lines tell no reason, but their bytes say it. */
static double time_of(const struct comm *c, const struct member *b, enum slr_collective_id op, const struct sizes *s)
{
    double sum = 0;
    for (size_t i = 0; i < b->collectives.n; i++) {
        const struct collective *o = &b->collectives.at[i];
        const uint64_t bytes = op == SLR_ALL_REDUCE ? o->bytes : o->bytes * c->nranks;
        if (!o->profiled && o->func && strcmp(o->func, slr_collectives[op].function + strlen("nccl")) == 0 &&
            bytes >= s->least && bytes <= s->most)
            sum += (double)(o->end - o->begin);
    }
    return sum * (double)(b->every ? b->every : 1);
}

static bool find(const struct report *r, enum slr_collective_id op, struct sizes *s)
{
    double sum = 0;
    bool any = false;
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        for (size_t k = 0; k < c->members.n; k++) {
            const struct member *b = &r->m->members.at[c->members.at[k]];
            any |= add_shapes(s, c, b->shapes.at, b->shapes.n, op);
            any |= add_shapes(s, c, b->scatter_shapes.at, b->scatter_shapes.n, op);
            sum += op == SLR_ALL_GATHER ? 0 : time_of(c, b, op, s);
        }
    }
    s->cost += any ? sum / (double)r->run->processes.n : 0;
    return any;
}

/* "64K", "2M", "1000": as settings are written. */
static const char *as_setting(char buf[FORM_ROOM], uint64_t bytes)
{
    const bool mib = bytes % (1 << 20) == 0, kib = bytes % 1024 == 0;
    snprintf(buf, FORM_ROOM, "%" PRIu64 "%s",
             mib   ? bytes >> 20
             : kib ? bytes >> 10
                   : bytes,
             mib   ? "M"
             : kib ? "K"
                   : "");
    return buf;
}

static void advise(struct report *r, struct advices *a, const struct sizes *s, const char *calls)
{
    char least[FORM_ROOM], most[FORM_ROOM], value[FORM_ROOM];
    form_bytes(least, (double)s->least);
    advice_add(a, ADVICE_SIZE, s->cost,
               "%s of all ranks, of %s%s%s (all ranks' shards together), are below SLIPRING_MIN_BYTES. "
               "SLIPRING_MIN_BYTES=%s %s%s.",
               calls, least, s->most > s->least ? " to " : "",
               s->most > s->least ? form_bytes(most, (double)s->most) : "", as_setting(value, s->least),
               trial_need(r) ? "lets slipring try the ring for them; NCCL keeps those that it is faster with"
                             : "moves them, untried, as SLIPRING_TRIALS=0 says",
               s->most < RARE ? ", as with most that are so small. Fewer and larger calls gain more" : "");
}

void advise_sizes(struct report *r, struct advices *a)
{
    const char *reason = slr_reason_name(SLR_R_TOO_SMALL);
    struct sizes s = {0};
    char calls[200] = "";
    uint64_t all = 0;
    for (int op = 0; op < SLR_COLLECTIVES; op++) {
        const bool any = find(r, (enum slr_collective_id)op, &s);
        const uint64_t n = report_count_of(r, (enum slr_collective_id)op, reason);
        const size_t len = strlen(calls);
        all += n;
        if (any && n && len + 60 < sizeof calls)
            snprintf(calls + len, sizeof calls - len, "%s%" PRIu64 " %s%s", len ? ", " : "", n,
                     slr_collectives[op].words, n > 1 ? "s" : "");
    }
    s.cost += time_of_gathers(r) / (double)r->run->processes.n;
    if (*calls)
        advise(r, a, &s, calls);
    else if (all && report_moved(r) <= 0)
        advice_add(
            a, ADVICE_SIZE, 0,
            "Calls of less than 64 KiB (all ranks' shards together), as these are, are faster by NCCL. Fewer and "
            "larger ones gain; else leave slipring out.");
}
