/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/clock.h"

#include "base/status.h"
#include "base/wait.h"

/* Of an event's time, ms. */
#define RESOLUTION 0.0005f

static bool record(CUevent *event, CUstream stream)
{
    if (!*event && slr_real.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        *event = NULL;
    return *event && slr_real.cuEventRecord(*event, stream) == CUDA_SUCCESS;
}

struct slr_clock *slr_clock_begin(struct slr_clock *clocks, CUstream stream)
{
    for (int i = 0; i < SLR_CLOCKS; i++) {
        struct slr_clock *clock = &clocks[i];
        if (clock->state != SLR_CLOCK_FREE)
            continue;
        clock->ended = clock->eaten = false;
        clock->gemm = 0;
        clock->open = true;
        clock->from = slr_now_ns();
        if (!record(&clock->begin, stream))
            return NULL;
        clock->state = SLR_CLOCK_RUNS;
        return clock;
    }
    return NULL;
}

void slr_clock_gathered(struct slr_clock *clock, CUstream stream)
{
    clock->ended = record(&clock->gathered, stream);
}

void slr_clock_consumed(struct slr_clock *clock, CUstream stream)
{
    clock->eaten = record(&clock->consumed, stream);
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
    clock->period = (float)(slr_now_ns() - clock->from) / 1e6f;
    clock->idle = slr_real.cuStreamQuery(stream) == CUDA_SUCCESS;
    clock->open = false;
}

/* Open, its site has not been called again: so it is for good if it was the last time, and each call of the communicator
 * would look at it. */
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

static void destroy(CUevent *event)
{
    if (*event)
        slr_real.cuEventDestroy(*event);
    *event = NULL;
}

void slr_clocks_close(struct slr_clock *clocks)
{
    for (int i = 0; i < SLR_CLOCKS; i++) {
        destroy(&clocks[i].begin);
        destroy(&clocks[i].gathered);
        destroy(&clocks[i].consumed);
    }
}
