/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of matches for all periods at once: period.h. */
#include "tools/symmetry/period.h"

#include <stdlib.h>
#include <string.h>

bool sym_period_open(struct sym_period *p, int nranks)
{
    *p = (struct sym_period){.width = 1 + (unsigned)nranks};
    /* 12 bytes for each token and period: 1.5 KiB for the sizes, and as much for each rank. */
    p->token = calloc((size_t)SYM_PERIOD_MAX * p->width, sizeof(*p->token));
    p->run = calloc((size_t)SYM_PERIOD_MAX * p->width, sizeof(*p->run));
    if (p->token && p->run)
        return true;
    sym_period_close(p);
    return false;
}

void sym_period_close(struct sym_period *p)
{
    free(p->token);
    free(p->run);
    *p = (struct sym_period){0};
}

/* Every call does this 128 times for each token, so it has no branch: the mask is all ones where
 * the tokens match, else 0, which ends the run. A run that wraps is confirmed again 2p calls later.
 */
static void extend(uint32_t *run, const uint64_t *past, uint64_t token, uint64_t seen)
{
    uint64_t most = seen < SYM_PERIOD_MAX ? seen : SYM_PERIOD_MAX;
    for (uint64_t q = 1; q <= most; q++)
        run[q - 1] = (run[q - 1] + 1) & -(uint32_t)(past[(seen - q) % SYM_PERIOD_MAX] == token);
}

void sym_period_add(struct sym_period *p, const uint64_t *token)
{
    for (unsigned k = 0; k < p->width; k++) {
        /* The ring is compared before the new token replaces the one of SYM_PERIOD_MAX calls ago.
         */
        uint64_t *past = &p->token[(size_t)k * SYM_PERIOD_MAX];
        extend(&p->run[(size_t)k * SYM_PERIOD_MAX], past, token[k], p->seen);
        past[p->seen % SYM_PERIOD_MAX] = token[k];
    }
    p->seen++;
}

/* Matches in a row of token k with that of `period` calls before. */
static uint32_t run_of(const struct sym_period *p, unsigned k, unsigned period)
{
    return p->run[(size_t)k * SYM_PERIOD_MAX + period - 1];
}

void sym_period_gap(struct sym_period *p)
{
    /* The runs go too: they count up to the latest call, which the next one does not follow. */
    p->seen = 0; /* nothing in the ring counts as past any more */
    memset(p->run, 0, (size_t)SYM_PERIOD_MAX * p->width * sizeof(*p->run));
}

uint32_t sym_period_by_sizes(const struct sym_period *p, unsigned period)
{
    return run_of(p, 0, period);
}

uint32_t sym_period_by_places(const struct sym_period *p, unsigned period)
{
    /* The rank with most evidence speaks for all: another may gather into a fresh buffer each time,
     * and would hide the period that the steady ones show. */
    uint32_t most = 0;
    for (unsigned k = 1; k < p->width; k++)
        if (run_of(p, k, period) > most)
            most = run_of(p, k, period);
    return most;
}

unsigned sym_period_find(const struct sym_period *p, bool by_places, unsigned least)
{
    /* From the smallest: multiples of a period match as well. 2q matches with the call q before
     * mean that the sequence has come three times; for a short period `least` asks for more. */
    for (unsigned q = 1; q <= SYM_PERIOD_MAX; q++) {
        uint32_t run = by_places ? sym_period_by_places(p, q) : sym_period_by_sizes(p, q);
        if (run >= 2 * q && run >= least)
            return q;
    }
    return 0;
}
