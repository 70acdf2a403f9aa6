/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/trials_impl.h"

#include <string.h>
#include "base/wait.h"
#include "base/status.h"

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

/* The median of the rounds that have it, and the worst ratio to that of `base` in the same round. False: more than
 * half of the rounds miss one of the two: a GEMM that comes irregularly is not in every way's turn. */
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

/* ---- clocks ----
 *
 * How long a gather takes, and with the GEMM that consumes it.
 *
 * On the device, by three events of a call: `begin` on its stream before anything of it; `gathered`
 * behind its end; `consumed` behind the GEMM, on the GEMM's stream. They are looked at later, so
 * nothing waits. A call that finds no clock free is not measured.
 *
 * On the host, from one call of a site to its next (slr_clock_next). That is an iteration's time where
 * the device had nothing left to do when the next call came, which its stream tells: then the host is what the
 * program waits for.
 *
 *   FREE    --slr_clock_begin-->  RUNS     its call may still be consumed by a GEMM; one at most
 *   RUNS    --slr_clock_stop-->   STOPPED  its last event is on its way
 *   STOPPED --slr_clock_read-->   FREE; not while it is open, because its site's next call has yet to
 *                                 come, but for SLR_CLOCK_PATIENCE calls only
 *
 * Whatever goes wrong costs the sample. */

/* Of an event's time, ms. */
#define RESOLUTION 0.0005f

struct slr_clock *slr_clock_begin(struct slr_clock *clocks, CUstream stream)
{
    for (int i = 0; i < SLR_CLOCKS; i++) {
        struct slr_clock *clock = &clocks[i];
        if (clock->state != SLR_CLOCK_FREE)
            continue;
        clock->ended = clock->eaten = false;
        clock->gemm = 0;
        clock->open = true;
        clock->mate = NULL;
        clock->from = slr_now_ns();
        if (!slr_trial_record(&clock->begin, stream))
            return NULL;
        clock->state = SLR_CLOCK_RUNS;
        return clock;
    }
    return NULL;
}

void slr_clock_gathered(struct slr_clock *clock, CUstream stream)
{
    clock->ended = slr_trial_record(&clock->gathered, stream);
}

void slr_clock_consumed(struct slr_clock *clock, CUstream stream)
{
    clock->eaten = slr_trial_record(&clock->consumed, stream);
}

bool slr_clock_stop(struct slr_clock *clock)
{
    clock->state = clock->ended || clock->eaten ? SLR_CLOCK_STOPPED : SLR_CLOCK_FREE;
    return clock->state == SLR_CLOCK_STOPPED;
}

static CUevent last_event(const struct slr_clock *clock)
{
    return clock->eaten ? clock->consumed : clock->gathered;
}

void slr_clock_next(struct slr_clock *clock, CUstream stream)
{
    const uint64_t now = slr_now_ns();
    const bool idle = slr_real.cuStreamQuery(stream) == CUDA_SUCCESS;
    for (; clock; clock = clock->mate) {
        clock->period = (float)(now - clock->from) / 1e6f;
        clock->idle = idle;
        clock->open = false;
    }
}

/* Open, its site has not been called again: so it is for good if it was the last time, and each call of the
 * communicator would look at it. */
static bool is_waited_for(const struct slr_clock *clock, uint64_t now)
{
    return clock->open && now - clock->call < SLR_CLOCK_PATIENCE;
}

/* Others have hardly ended before it, and each look at one is a call of the driver. */
static struct slr_clock *earliest(struct slr_clock *clocks, uint64_t now)
{
    struct slr_clock *found = NULL;
    for (int i = 0; i < SLR_CLOCKS; i++)
        if (clocks[i].state == SLR_CLOCK_STOPPED && !is_waited_for(&clocks[i], now) &&
            (!found || clocks[i].call < found->call))
            found = &clocks[i];
    return found;
}

struct slr_clock *slr_clock_read(struct slr_clock *clocks, uint64_t now, float *ms)
{
    struct slr_clock *clock = earliest(clocks, now);
    const CUresult over = !clock || clock->open ? CUDA_SUCCESS : slr_real.cuEventQuery(last_event(clock));
    *ms = 0;
    if (!clock || over == CUDA_ERROR_NOT_READY)
        return NULL;
    clock->state = SLR_CLOCK_FREE;
    if (clock->open || over != CUDA_SUCCESS ||
        slr_real.cuEventElapsedTime(ms, clock->begin, last_event(clock)) != CUDA_SUCCESS)
        *ms = 0;
    else if (*ms < RESOLUTION) /* the gather began at its entry, and the host was held up before `begin` */
        *ms = RESOLUTION;
    return clock;
}

void slr_clocks_close(struct slr_clock *clocks)
{
    for (int i = 0; i < SLR_CLOCKS; i++) {
        slr_trial_drop(&clocks[i].begin);
        slr_trial_drop(&clocks[i].gathered);
        slr_trial_drop(&clocks[i].consumed);
    }
}
