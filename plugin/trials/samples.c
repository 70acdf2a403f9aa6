/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/samples.h"

#include <string.h>

void slr_samples_add(struct slr_samples *row, const struct slr_clock *clock, float ms)
{
    uint8_t *n = row ? &row->count[clock->way][clock->round] : NULL;
    if (!n || *n == SLR_SAMPLES)
        return;
    row->ms[clock->way][clock->round][*n] = ms;
    /* An iteration takes as long as the slower of the two. */
    row->period[clock->way][clock->round][*n] = clock->period > ms ? clock->period : ms;
    row->idle[clock->way] += clock->idle;
    (*n)++;
}

bool slr_samples_of_host(const struct slr_samples *row, uint32_t rounds)
{
    for (int w = 0; w < SLR_WAYS; w++) {
        unsigned n = 0;
        for (uint32_t i = 0; i < rounds; i++)
            n += row->count[w][i];
        if (n > 0 && row->idle[w] * 5u >= n * 4u)
            return true;
    }
    return false;
}

/* The median of a round; 0: none. */
static float of_round(const struct slr_samples *row, int way, uint32_t round, bool host)
{
    float ms[SLR_SAMPLES];
    memcpy(ms, host ? row->period[way][round] : row->ms[way][round], sizeof ms);
    return row->count[way][round] ? slr_trials_median(ms, row->count[way][round]) : 0;
}

/* The median of the rounds that have it, and the worst ratio to that of `base` in the same round. False: more than half of
 * the rounds miss one of the two: a GEMM that comes irregularly is not in every way's turn. */
static bool measured_in(const struct slr_samples *row, int way, uint32_t rounds, int base, float *ms, float *worst)
{
    float all[SLR_TRIAL_ROUNDS];
    const bool host = slr_samples_of_host(row, rounds);
    uint32_t n = 0;
    *worst = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const float other = of_round(row, base, i, host), own = of_round(row, way, i, host);
        if (other <= 0 || own <= 0)
            continue;
        all[n++] = own;
        *worst = own / other > *worst ? own / other : *worst;
    }
    if (n * 2 <= rounds)
        return false;
    *ms = slr_trials_median(all, n);
    return true;
}

bool slr_samples_whole(const struct slr_samples *row, uint32_t rounds)
{
    float ms, worst;
    for (int w = 0; w < SLR_WAYS; w++)
        if (slr_way_differs(w, row->gemm) && !measured_in(row, w, rounds, SLR_WAY_RING, &ms, &worst))
            return false;
    return true;
}

bool slr_samples_tried(const struct slr_samples *row, uint32_t rounds)
{
    return row->before.calls > 0 || slr_samples_whole(row, rounds);
}

void slr_samples_forget(struct slr_samples *row)
{
    memset(row->count, 0, sizeof row->count);
    memset(row->idle, 0, sizeof row->idle);
}

struct slr_trial_row slr_samples_row(const struct slr_samples *from, uint32_t rounds, int base)
{
    struct slr_trial_row row = {.gemm = from->gemm, .site = from->site, .of_host = slr_samples_of_host(from, rounds)};
    for (int w = 0; w < SLR_WAYS; w++) {
        if (!measured_in(from, w, rounds, base, &row.ms[w], &row.worst[w]))
            row.ms[w] = row.worst[w] = 0;
        for (uint32_t i = 0; i < rounds; i++)
            row.calls += from->count[w][i];
    }
    return row;
}

struct slr_trial_row slr_samples_post(struct slr_samples *row, uint32_t rounds, int base, enum slr_stage stage)
{
    const struct slr_trial_row now = slr_samples_row(row, rounds, base);
    if (stage != SLR_STAGE_WAYS)
        return now;
    if (slr_samples_whole(row, rounds) || now.calls == 0)
        row->before = now;
    return row->before.calls ? row->before : now;
}
