/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/trials/trials_impl.h, on a driver whose events have happened at once. */
#include <criterion/criterion.h>
#include "plugin/trials/trials_impl.h"

static CUresult answer; /* of cuEventQuery */
static unsigned queries;

static CUresult CUDAAPI create(CUevent *event, unsigned flags)
{
    static char events[3 * SLR_CLOCKS];
    static size_t n;
    (void)flags;
    *event = (CUevent)&events[n++ % sizeof events];
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI query(CUevent event)
{
    (void)event;
    queries++;
    return answer;
}

static CUresult CUDAAPI query_stream(CUstream stream)
{
    (void)stream;
    return answer;
}

static float took;

static CUresult CUDAAPI elapsed(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *ms = took;
    return CUDA_SUCCESS;
}

static void fakes(void)
{
    slr_real.cuEventCreate = create;
    slr_real.cuEventRecord = record;
    slr_real.cuEventQuery = query;
    slr_real.cuStreamQuery = query_stream;
    slr_real.cuEventElapsedTime = elapsed;
    answer = CUDA_SUCCESS;
    took = 2.5f;
}

TestSuite(clock, .init = fakes);

/* Of a call with this number, over on the device; its site's next call has not come. */
static struct slr_clock *stopped(struct slr_clock *clocks, uint64_t call)
{
    struct slr_clock *clock = slr_clock_begin(clocks, NULL);
    cr_assert(clock);
    clock->call = call;
    slr_clock_gathered(clock, NULL);
    cr_assert(slr_clock_stop(clock));
    return clock;
}

Test(clock, a_time_is_read_when_the_next_call_has_come)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0}, *clock = stopped(clocks, 1);
    float ms = -1;
    cr_assert_null(slr_clock_read(clocks, 2, &ms));
    slr_clock_next(clock, NULL);
    cr_assert_eq(slr_clock_read(clocks, 2, &ms), clock);
    cr_assert(ms == 2.5f && clock->idle && !clock->open && clock->state == SLR_CLOCK_FREE);
}

/* The calls of a site in one group: what the host takes is from group to group. */
Test(clock, mates_have_their_next_call_together)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0}, *first = stopped(clocks, 1), *second = stopped(clocks, 2);
    float ms;
    second->mate = first;
    cr_assert_null(slr_clock_read(clocks, 3, &ms));
    slr_clock_next(second, NULL);
    cr_assert(first->period >= second->period && second->period > 0 && first->idle && !first->open && !second->open);
    cr_assert_eq(slr_clock_read(clocks, 3, &ms), first);
    cr_assert_eq(slr_clock_read(clocks, 3, &ms), second);
}

/* A small gather may be over before the event in front of it has been recorded: that is a time, too. */
Test(clock, a_gather_that_was_over_before_its_clock_began)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0};
    float ms = 0;
    took = -0.003f;
    slr_clock_next(stopped(clocks, 1), NULL);
    cr_assert_not_null(slr_clock_read(clocks, 2, &ms));
    cr_assert(ms > 0 && ms < 0.001f);
}

Test(clock, one_that_is_not_over)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0};
    float ms;
    slr_clock_next(stopped(clocks, 1), NULL);
    answer = CUDA_ERROR_NOT_READY;
    cr_assert_null(slr_clock_read(clocks, 2, &ms));
}

/* Each look is a call of the driver. */
Test(clock, the_earliest_is_looked_at)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0}, *later = stopped(clocks, 7), *first = stopped(clocks, 3);
    float ms;
    slr_clock_next(later, NULL);
    slr_clock_next(first, NULL);
    answer = CUDA_ERROR_NOT_READY;
    queries = 0;
    cr_assert_null(slr_clock_read(clocks, 8, &ms));
    cr_assert_eq(queries, 1);
    answer = CUDA_SUCCESS;
    cr_assert_eq(slr_clock_read(clocks, 8, &ms), first);
    cr_assert_eq(slr_clock_read(clocks, 8, &ms), later);
}

/* Else every call of the communicator would look at it, for ever. */
Test(clock, the_next_call_is_waited_for_with_a_bound)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0}, *clock = stopped(clocks, 10);
    float ms = -1;
    answer = CUDA_ERROR_NOT_READY;
    queries = 0;
    cr_assert_null(slr_clock_read(clocks, 10 + SLR_CLOCK_PATIENCE - 1, &ms));
    cr_assert_eq(slr_clock_read(clocks, 10 + SLR_CLOCK_PATIENCE, &ms), clock);
    cr_assert(clock->state == SLR_CLOCK_FREE && clock->open && ms == 0, "it has no time, and the caller can tell");
    cr_assert_eq(queries, 0);
    cr_assert_null(slr_clock_read(clocks, 10 + SLR_CLOCK_PATIENCE, &ms));
}

Test(clock, without_a_free_one_nothing_is_measured)
{
    struct slr_clock clocks[SLR_CLOCKS] = {0};
    for (int i = 0; i < SLR_CLOCKS; i++)
        stopped(clocks, 1);
    cr_assert_null(slr_clock_begin(clocks, NULL));
}
