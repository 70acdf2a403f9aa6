#include "plugin/period.h"

#include <stdlib.h>
#include <string.h>

bool slr_period_open(struct slr_period *p, int nranks)
{
    *p = (struct slr_period){.width = 1 + (unsigned)nranks};
    p->token = calloc((size_t)SLR_PERIOD_MAX * p->width, sizeof(*p->token));
    p->run = calloc((size_t)(SLR_PERIOD_MAX + 1) * p->width, sizeof(*p->run));
    if (p->token && p->run)
        return true;
    slr_period_close(p);
    return false;
}

void slr_period_close(struct slr_period *p)
{
    free(p->token);
    free(p->run);
    *p = (struct slr_period){0};
}

static uint64_t *row(const struct slr_period *p, uint64_t call)
{
    return &p->token[call % SLR_PERIOD_MAX * p->width];
}

static void extend(uint32_t *run, const uint64_t *now, const uint64_t *then, unsigned width)
{
    for (unsigned k = 0; k < width; k++)
        run[k] = now[k] == then[k] ? run[k] + (run[k] < UINT32_MAX) : 0;
}

void slr_period_add(struct slr_period *p, const uint64_t *token)
{
    for (unsigned q = 1; q <= SLR_PERIOD_MAX && q <= p->seen; q++)
        extend(&p->run[(size_t)q * p->width], token, row(p, p->seen - q), p->width);
    memcpy(row(p, p->seen), token, p->width * sizeof(*token));
    p->seen++;
}

void slr_period_gap(struct slr_period *p)
{
    p->seen = 0;
    memset(p->run, 0, (size_t)(SLR_PERIOD_MAX + 1) * p->width * sizeof(*p->run));
}

uint32_t slr_period_by_sizes(const struct slr_period *p, unsigned period)
{
    return p->run[(size_t)period * p->width];
}

uint32_t slr_period_by_places(const struct slr_period *p, unsigned period)
{
    uint32_t most = 0;
    for (unsigned k = 1; k < p->width; k++)
        if (p->run[(size_t)period * p->width + k] > most)
            most = p->run[(size_t)period * p->width + k];
    return most;
}

unsigned slr_period_find(const struct slr_period *p, bool by_places, unsigned least)
{
    for (unsigned q = 1; q <= SLR_PERIOD_MAX; q++) {
        uint32_t run = by_places ? slr_period_by_places(p, q) : slr_period_by_sizes(p, q);
        if (run >= 2 * q && run >= least)
            return q;
    }
    return 0;
}
