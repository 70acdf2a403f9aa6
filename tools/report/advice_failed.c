/* SPDX-License-Identifier: Apache-2.0 */
/* What has failed: communicators, and those that stay with NCCL as a whole. */
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/advice.h"

/* The failure that came first; those of other ranks follow from it. */
static const struct member *first_failed(const struct report *r, const struct comm *c)
{
    const struct member *first = NULL;
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        if (b->failure.why && (!first || b->failure.ts < first->failure.ts))
            first = b;
    }
    return first;
}

static const struct member *member_of(const struct report *r, const struct comm *c, int32_t crank)
{
    for (size_t k = 0; k < c->members.n; k++)
        if (r->m->members.at[c->members.at[k]].crank == crank)
            return &r->m->members.at[c->members.at[k]];
    return NULL;
}

/* Of whom more is to be found out: of the peer, or of the rank itself. */
static void put_trace(char *buf, size_t size, const struct report *r, const struct comm *c, const struct member *b)
{
    const struct member *peer = b->failure.peer < 0 ? b : member_of(r, c, b->failure.peer);
    const struct process *p = peer ? &r->m->processes.at[peer->process] : NULL;
    const char *who = peer ? report_rank_label(r, peer) : "a rank without log";
    char after[FORM_ROOM];
    if (p && p->has_summary)
        snprintf(buf, size, "Look at the output of %s, whose process came to its end", who);
    else if (p)
        snprintf(buf, size,
                 "Look at the output of %s: its log ends, without totals, %s after the run's first line. It "
                 "was killed (out of memory: `dmesg`), or ended by _exit",
                 who, form_time(after, (double)(p->last_ts - r->run->first_ts)));
    else
        snprintf(buf, size, "Look at the output of that rank, of which there is no log");
}

static void put_failed(struct report *r, struct advices *a, const struct comm *c, const struct member *b)
{
    const struct member *peer = b->failure.peer == b->crank ? NULL : member_of(r, c, b->failure.peer);
    char trace[400], who[80] = "";
    put_trace(trace, sizeof trace, r, c, b);
    if (b->failure.peer >= 0 && b->failure.peer != b->crank)
        snprintf(who, sizeof who, " because of %.60s", peer ? report_rank_label(r, peer) : "a rank without log");
    advice_add(a, ADVICE_FAILED, 0,
               "Communicator %s failed at call %" PRIu64 " on %s%s: %s. Its calls return an error from there on. %s.",
               c->name, b->failure.call, report_rank_label(r, b), who, b->failure.why, trace);
}

bool report_has_failed(const struct report *r)
{
    for (size_t i = 0; i < r->run->comms.n; i++)
        if (first_failed(r, &r->m->comms.at[r->run->comms.at[i]]))
            return true;
    return false;
}

/* Of the first communicator that lacks some: others have the same ranks. */
static void put_absent(struct report *r, struct advices *a)
{
    char list[200];
    uint32_t n = 0;
    const struct comm *c = NULL;
    for (size_t i = 0; i < r->run->comms.n && n == 0; i++) {
        c = &r->m->comms.at[r->run->comms.at[i]];
        n = report_absent(r, c, list, sizeof list);
    }
    if (n)
        advice_add(
            a, ADVICE_AWAY, 0,
            "There is no log of rank%s %s%s, of communicator %s: what is summed up here is the others'. Without "
            "slipring, or with SLIPRING_LOG=warn, a rank writes none, nor where its disk is full, which it says on "
            "stderr.",
            n > 1 ? "s" : "", list, n > 16 ? ", ..." : "", c->name);
}

/* Ranks whose logs have no end. */
static void put_endless(struct report *r, struct advices *a)
{
    char list[600];
    const unsigned n = report_endless(r, list, sizeof list);
    if (n)
        advice_add(a, ADVICE_AWAY, 0,
                   "The log%s of %s %s no end: killed, ended by _exit, or the disk was full. Of %s only what %s lines "
                   "show is counted. Look at %s output; a program that returns from main, or calls exit, tells all.",
                   n > 1 ? "s" : "", list, n > 1 ? "have" : "has", n > 1 ? "them" : "it", n > 1 ? "their" : "its",
                   n > 1 ? "their" : "its");
}

/* Calls of all collectives that stayed with NCCL for a reason: "80 all-gathers, 4 all-reduces". Returns how many. */
static uint64_t list_calls(const struct report *r, const char *reason, char *list, size_t size)
{
    uint64_t all = 0;
    size_t len = 0;
    *list = '\0';
    for (int op = 0; op < SLR_COLLECTIVES; op++) {
        const uint64_t n = report_count_of(r, (enum slr_collective_id)op, reason);
        if (n && len + 60 < size)
            len += (size_t)snprintf(list + len, size - len, "%s%" PRIu64 " %s%s", len ? ", " : "", n,
                                    slr_collectives[op].words, n > 1 ? "s" : "");
        all += n;
    }
    return all;
}

/* ": rank 0 has 0.2.0, rank 1 has 0.3.0" of the first of each version. */
static void put_versions(char *buf, size_t size, const struct report *r)
{
    size_t len = 0;
    const char *before = NULL;
    *buf = '\0';
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        if (!p->version || p->version == before || len + 80 > size)
            continue;
        len += (size_t)snprintf(buf + len, size - len, "%srank %" PRId32 " has %.30s", len ? ", " : ": ", p->rank,
                                p->version);
        before = p->version;
    }
}

/* All of a communicator's calls. Those that it refused have no count when the log ended early. */
static void put_away(struct report *r, struct advices *a, const struct comm *c)
{
    const struct member *b = &r->m->members.at[c->members.at[0]];
    const char *cure = !b->ring && b->reason ? reason_cure(b->reason) : NULL,
               *means = cure ? reason_meaning(b->reason) : "";
    char calls[160], versions[300] = "";
    if (!cure)
        return;
    if (!list_calls(r, b->reason, calls, sizeof calls))
        snprintf(calls, sizeof calls, "all calls");
    if (strcmp(b->reason, slr_reason_name(SLR_R_VERSION_DIFFERS)) == 0)
        put_versions(versions, sizeof versions, r);
    advice_add(a, ADVICE_AWAY, 0, "Communicator %s stays with NCCL (%s), %s of all ranks: %s%s. What helps: %s.",
               c->name, b->reason, calls, means, versions, cure);
}

static bool away_before(const struct report *r, size_t i)
{
    const struct member *b = &r->m->members.at[r->m->comms.at[r->run->comms.at[i]].members.at[0]];
    for (size_t k = 0; k < i; k++) {
        const struct member *other = &r->m->members.at[r->m->comms.at[r->run->comms.at[k]].members.at[0]];
        if (!other->ring && other->reason == b->reason)
            return true;
    }
    return false;
}

void advise_failures(struct report *r, struct advices *a)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        const struct member *b = first_failed(r, c);
        if (b)
            put_failed(r, a, c, b);
        if (!away_before(r, i))
            put_away(r, a, c);
    }
    put_absent(r, a);
    if (!report_has_failed(r))
        put_endless(r, a);
}

static bool is_away(const struct report *r, const char *reason)
{
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct member *b = &r->m->members.at[r->m->comms.at[r->run->comms.at[i]].members.at[0]];
        if (!b->ring && b->reason && strcmp(b->reason, reason) == 0)
            return true;
    }
    return false;
}

/* Gathers, and what comes behind them: the reasons of both have a cure in one table. */
void advise_reasons(struct report *r, struct advices *a)
{
    for (int i = 0; i < SLR_R_COUNT; i++) {
        const char *name = slr_reason_name((enum slr_reason)i), *cure = slr_reason_cure((enum slr_reason)i);
        char calls[160];
        if (!cure || i == SLR_R_TOO_SMALL || is_away(r, name) || !list_calls(r, name, calls, sizeof calls))
            continue;
        if (i < SLR_R_FUSED)
            advice_add(a, ADVICE_REST, 0, "%s of all ranks stayed with NCCL (%s): %s. What helps: %s.", calls, name,
                       slr_reason_doc((enum slr_reason)i), cure);
        else
            advice_add(a, ADVICE_JOIN, 0, "%s (%" PRIu64 " calls of all ranks): %s. What helps: %s.", name,
                       report_count(r, name), slr_reason_doc((enum slr_reason)i), cure);
    }
}
