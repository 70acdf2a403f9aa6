/* SPDX-License-Identifier: Apache-2.0 */
/* How many calls it takes to compare the ways of a call site (docs/trials.md), and why that was not done to the end. */
#include <inttypes.h>
#include <string.h>
#include "base/settings.h"
#include "plugin/trials/ways.h"
#include "tools/report/advice.h"

/* The value of a setting in a process, whose line `process` names those that are given: "MIN_BYTES=0 TRIALS=0". */
static uint64_t value_of(const struct process *p, enum slr_setting_id id)
{
    const struct slr_setting_row *row = &slr_setting_rows[id];
    const size_t len = strlen(row->name);
    char text[64];
    snprintf(text, sizeof text, "%s", row->def);
    for (const char *at = p->settings; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, row->name, len) == 0 && at[len] == '=')
            snprintf(text, sizeof text, "%.*s", (int)strcspn(at + len + 1, " "), at + len + 1);
    uint64_t value = 0;
    return slr_setting_value(row, text, &value) == 0 ? value : 0;
}

/* The smallest number of rounds of all ranks counts. A process without its line has those of the others. */
uint64_t trial_need(const struct report *r)
{
    const struct process defaults = {0};
    uint64_t rounds = value_of(&defaults, SLR_S_TRIALS), after = value_of(&defaults, SLR_S_TRIALS_AFTER);
    for (size_t i = 0, told = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        const uint64_t own = value_of(p, SLR_S_TRIALS);
        if (!p->settings)
            continue;
        rounds = !told++ || own < rounds ? own : rounds;
        after = value_of(p, SLR_S_TRIALS_AFTER);
    }
    return slr_trial_need(rounds, after);
}

/* What rank 0 says at the end of each site; of the size's the one with most calls. NULL: nothing of that size. */
static const struct site_way *way_of(const struct report *r, const struct comm *c, enum slr_collective_id op,
                                     uint64_t shard, bool *any)
{
    const struct site_way *found = NULL;
    *any = false;
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        *any |= b->ways.n > 0;
        for (size_t i = 0; i < b->ways.n; i++) {
            const struct site_way *w = &b->ways.at[i];
            if (w->site.op == op && w->site.shard == shard && (!found || w->calls > found->calls))
                found = w;
        }
    }
    return found;
}

enum untried untried_why(const struct report *r, const struct comm *c, enum slr_collective_id op, uint64_t shard,
                         uint64_t *calls)
{
    bool any;
    const struct site_way *w = way_of(r, c, op, shard, &any);
    *calls = w ? w->calls : 0;
    if (trial_need(r) == 0)
        return UNTRIED_OFF;
    if (!any)
        return report_endless(r, NULL, 0) || !report_has_summary(r) ? UNTRIED_CUT : UNTRIED_CUBLAS;
    return !w ? UNTRIED_MANY : w->calls < trial_need(r) ? UNTRIED_FEW : UNTRIED_UNMEASURED;
}

const char *untried_words(char *buf, const struct report *r, enum untried why, uint64_t calls)
{
    static const char *const words[] = {
        [UNTRIED_OFF] = "SLIPRING_TRIALS=0 says that nothing is tried",
        [UNTRIED_CUBLAS] = "nothing is tried where CUBLAS_WORKSPACE_CONFIG asks for reproducible results, on any rank",
        [UNTRIED_CUT] = "these logs end before they say more",
        [UNTRIED_MANY] = "the program has more call sites than are tried",
    };
    if (why == UNTRIED_FEW)
        snprintf(buf, UNTRIED_ROOM, "%" PRIu64 " call%s, and it takes up to %" PRIu64, calls, calls == 1 ? "" : "s",
                 trial_need(r));
    else if (why == UNTRIED_UNMEASURED)
        snprintf(buf, UNTRIED_ROOM,
                 "%" PRIu64 " calls were enough, but in half of the rounds or more their times could not be measured "
                 "on all ranks",
                 calls);
    else
        snprintf(buf, UNTRIED_ROOM, "%s", words[why]);
    return buf;
}
