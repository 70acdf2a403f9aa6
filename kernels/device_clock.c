/* SPDX-License-Identifier: Apache-2.0 */
/* A device's time in the host's (timing.h): docs/tracing.md, "One clock", says how it is found and how wrong it
 * can be. That a device's second is the host's is not taken for granted: the first base is only an anchor, and
 * how fast the device's clock runs is measured between it and each later one; where that differs from the
 * host's by more than a thousandth, as on a simulated device whose time is dilated, the uncertainty of the
 * measured rate adds to the drift. While there is no base at all, attempts are given more time, up to 32 ms. */
#include "kernels/timing.h"

#include <sched.h>
#include <time.h>
#include "base/status.h"
#include "base/wait.h"

#define OLD_NS 50000000u     /* a base is looked for again after this */
#define ATTEMPTS 8           /* at most */
#define GOOD_NS 4000u        /* half a bracket that needs no further attempt */
#define POOR_NS 20000u       /* and one that is looked for again at once */
#define PATIENCE_NS 1000000u /* for one attempt, at first */
#define MOST_PATIENCE_NS 32000000u
#define INSIST_NS 1000000000u
#define RESOLUTION_NS 500u      /* of an event */
#define DRIFT 1e-4              /* between clocks that mean the same second */
#define ALIKE 1e-3              /* and how different they may seem */
#define FIRST_BASE_NS 10000000u /* from the anchor to the first base */

static enum slr_status create(struct slr_device_clock *clock)
{
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &clock->stream, CU_STREAM_NON_BLOCKING, 0));
    SLR_TRY(SLR_CU(cuEventCreate, &clock->anchor, CU_EVENT_DEFAULT));
    SLR_TRY(SLR_CU(cuEventCreate, &clock->base, CU_EVENT_DEFAULT));
    SLR_TRY(SLR_CU(cuEventCreate, &clock->best, CU_EVENT_DEFAULT));
    return SLR_CU(cuEventCreate, &clock->attempt, CU_EVENT_DEFAULT);
}

enum slr_status slr_device_clock_open(struct slr_device_clock *clock)
{
    *clock = (struct slr_device_clock){.patience_ns = PATIENCE_NS, .rate = 1, .drift = DRIFT};
    enum slr_status s = create(clock);
    if (s != SLR_OK)
        slr_device_clock_close(clock);
    return s;
}

static void destroy_event(CUevent e)
{
    if (e)
        slr_real.cuEventDestroy(e);
}

void slr_device_clock_close(struct slr_device_clock *clock)
{
    destroy_event(clock->anchor);
    destroy_event(clock->base);
    destroy_event(clock->best);
    destroy_event(clock->attempt);
    if (clock->stream)
        slr_real.cuStreamDestroy(clock->stream);
    *clock = (struct slr_device_clock){0};
}

static void swap(CUevent *a, CUevent *b)
{
    CUevent t = *a;
    *a = *b;
    *b = t;
}

/* Records `attempt` and waits for it, without sleeping, which would widen the bracket. */
static bool attempt(struct slr_device_clock *clock, uint64_t *at, uint64_t *half)
{
    uint64_t before = slr_now_ns(), after;
    if (slr_real.cuEventRecord(clock->attempt, clock->stream) != CUDA_SUCCESS)
        return false;
    CUresult r;
    do {
        r = slr_real.cuEventQuery(clock->attempt);
        after = slr_now_ns();
    } while (r == CUDA_ERROR_NOT_READY && after - before < clock->patience_ns && sched_yield() == 0);
    /* The event was recorded somewhere between the two looks: the middle is wrong by half at
     * most. */
    *half = (after - before) / 2;
    *at = before + *half;
    return r == CUDA_SUCCESS;
}

static uint64_t grown(const struct slr_device_clock *clock, uint64_t distance)
{
    /* The terms are those of docs/tracing.md, in its order. */
    return clock->half_ns + (uint64_t)((double)distance * clock->drift) + (distance >> 24) + RESOLUTION_NS;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* How fast the device's clock runs, from the anchor to the base. */
static void measure_rate(struct slr_device_clock *clock)
{
    float ms = 0;
    if (slr_real.cuEventElapsedTime(&ms, clock->anchor, clock->base) != CUDA_SUCCESS || !(ms > 0))
        return;
    /* `doubt`: how much of the difference the two brackets alone could make. */
    double host = (double)(clock->base_ns - clock->anchor_ns), rate = host / ((double)ms * 1e6);
    double doubt = (double)(clock->half_ns + clock->anchor_half_ns + RESOLUTION_NS) / host;
    bool alike = rate < 1 + ALIKE + doubt && rate > 1 - ALIKE - doubt;
    clock->rate = alike ? 1 : rate;
    clock->drift = alike ? DRIFT : DRIFT + doubt;
}

/* `best` becomes the base when its bracket is tighter than what the present one's has grown to. */
static void adopt_base(struct slr_device_clock *clock, uint64_t at, uint64_t half)
{
    if (clock->known && half + RESOLUTION_NS >= grown(clock, distance(at, clock->base_ns)))
        return;
    if (!clock->anchored) {
        swap(&clock->anchor, &clock->best);
        clock->anchor_ns = at;
        clock->anchor_half_ns = half;
        clock->anchored = true;
        return;
    }
    /* Too close to the anchor, the rate between the two would be mostly error. */
    if (at - clock->anchor_ns < FIRST_BASE_NS)
        return;
    swap(&clock->base, &clock->best);
    clock->base_ns = at;
    clock->half_ns = half;
    clock->known = true;
    measure_rate(clock);
}

bool slr_device_clock_look(struct slr_device_clock *clock)
{
    uint64_t begin = slr_now_ns(), best_at = 0, best_half = UINT64_MAX;
    if (clock->known && begin - clock->base_ns < OLD_NS && clock->half_ns < POOR_NS)
        return true;
    for (int i = 0; i < ATTEMPTS && best_half > GOOD_NS && slr_now_ns() - begin < 2 * clock->patience_ns; i++) {
        uint64_t at, half;
        if (!attempt(clock, &at, &half) || half >= best_half)
            continue;
        best_at = at;
        best_half = half;
        /* The event of the best attempt is kept; the next one records the other. */
        swap(&clock->best, &clock->attempt);
    }
    if (best_half != UINT64_MAX) {
        adopt_base(clock, best_at, best_half);
        clock->patience_ns = PATIENCE_NS;
        /* No attempt ended: the stream did not run. Without any base more patience is worth its
     * time. */
    } else if (!clock->known && clock->patience_ns < MOST_PATIENCE_NS) {
        clock->patience_ns *= 2;
    }
    return clock->known;
}

bool slr_device_clock_insist(struct slr_device_clock *clock)
{
    uint64_t end = slr_now_ns() + INSIST_NS;
    while (!slr_device_clock_look(clock) && slr_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    return clock->known;
}

CUresult slr_device_clock_time(const struct slr_device_clock *clock, CUevent event, uint64_t *ns, uint64_t *error)
{
    float ms = 0;
    CUresult r = slr_real.cuEventElapsedTime(&ms, clock->base, event);
    if (r != CUDA_SUCCESS)
        return r;
    *ns = clock->base_ns + (uint64_t)(int64_t)((double)ms * 1e6 * clock->rate);
    *error = grown(clock, distance(*ns, clock->base_ns));
    return CUDA_SUCCESS;
}
