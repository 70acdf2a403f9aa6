/* SPDX-License-Identifier: Apache-2.0 */
/* Threads in GEMM hooks (plugin/passed/in_call.h): who is told returns the error, and nobody else does. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include "base/wait.h"
#include "plugin/passed/in_call.h"

#define STUCK_MS SLR_IN_CALL_LOOK_MS /* the limit: one look in time */

TestSuite(in_call, .timeout = 60);

static const CUcontext here = (CUcontext)0x10, there = (CUcontext)0x20;

Test(in_call, a_call_that_passes_keeps_its_result)
{
    unsigned entry = slr_in_call_enter(here, NULL);
    cr_assert_eq(slr_in_call_tell(here, 1000, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert_eq(slr_in_call_tell(here, 1000 + STUCK_MS - 1, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert(slr_in_call_leave(entry));
    cr_assert_eq(slr_in_call_tell(here, 5000, STUCK_MS), SLR_IN_CALL_NONE);
}

Test(in_call, a_call_that_hangs_is_told_and_returns_the_error)
{
    unsigned entry = slr_in_call_enter(here, NULL);
    uint64_t told = 1000 + STUCK_MS;
    cr_assert_eq(slr_in_call_tell(here, 1000, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert_eq(slr_in_call_tell(here, told, STUCK_MS), SLR_IN_CALL_TOLD);
    cr_assert_eq(slr_in_call_tell(here, told + SLR_IN_CALL_HELD_MS - 1, STUCK_MS), SLR_IN_CALL_TOLD,
                 "for another communicator, too");
    cr_assert_eq(slr_in_call_tell(here, told + SLR_IN_CALL_HELD_MS, STUCK_MS), SLR_IN_CALL_HELD);
    cr_assert_not(slr_in_call_leave(entry));
    cr_assert_eq(slr_in_call_tell(here, told + 5000, STUCK_MS), SLR_IN_CALL_NONE);
}

Test(in_call, the_next_call_of_a_thread_is_another_one)
{
    cr_assert(slr_in_call_leave(slr_in_call_enter(here, NULL)));
    unsigned entry = slr_in_call_enter(here, NULL);
    cr_assert_eq(slr_in_call_tell(here, 1000, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert(slr_in_call_leave(entry));
    cr_assert_eq(slr_in_call_enter(here, NULL), entry);
    cr_assert_eq(slr_in_call_tell(here, 1000 + STUCK_MS, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert(slr_in_call_leave(entry));
}

/* The watchdog does not get to run: nor does the call. */
Test(in_call, a_look_that_comes_late_counts_as_one)
{
    unsigned entry = slr_in_call_enter(here, NULL);
    uint64_t now = 1000;
    cr_assert_eq(slr_in_call_tell(here, now, 10 * STUCK_MS), SLR_IN_CALL_NONE);
    for (int i = 0; i < 9; i++)
        cr_assert_eq(slr_in_call_tell(here, now += 5000, 10 * STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert_eq(slr_in_call_tell(here, now += 5000, 10 * STUCK_MS), SLR_IN_CALL_TOLD);
    cr_assert_not(slr_in_call_leave(entry));
}

Test(in_call, without_a_limit_nobody_is_told)
{
    unsigned entry = slr_in_call_enter(here, NULL), other = slr_in_call_enter(here, NULL);
    for (uint64_t now = 0; now < 5000; now += 50)
        cr_assert_eq(slr_in_call_tell(here, now, 0), SLR_IN_CALL_NONE);
    cr_assert(slr_in_call_leave(other));
    slr_in_call_tell(here, 5000, STUCK_MS);
    cr_assert_eq(slr_in_call_tell(here, 5000 + STUCK_MS, STUCK_MS), SLR_IN_CALL_TOLD);
    other = slr_in_call_enter(here, NULL);
    for (uint64_t now = 5000 + STUCK_MS; now < 10000; now += 50)
        cr_assert_neq(slr_in_call_tell(here, now, 0), SLR_IN_CALL_NONE, "who has been told counts");
    cr_assert(slr_in_call_leave(other));
    cr_assert_not(slr_in_call_leave(entry));
}

Test(in_call, another_context_is_not_concerned)
{
    unsigned entry = slr_in_call_enter(there, NULL);
    for (uint64_t now = 0; now < 5000; now += 100)
        cr_assert_eq(slr_in_call_tell(here, now, STUCK_MS), SLR_IN_CALL_NONE);
    cr_assert(slr_in_call_leave(entry));
}

Test(in_call, more_threads_than_there_are_entries_keep_their_results)
{
    unsigned entry[SLR_IN_CALL];
    for (unsigned i = 0; i < SLR_IN_CALL; i++) {
        entry[i] = slr_in_call_enter(here, NULL);
        cr_assert_lt(entry[i], SLR_IN_CALL);
    }
    cr_assert_eq(slr_in_call_enter(here, NULL), SLR_IN_CALL);
    slr_in_call_tell(here, 0, STUCK_MS);
    cr_assert_eq(slr_in_call_tell(here, STUCK_MS, STUCK_MS), SLR_IN_CALL_TOLD);
    cr_assert(slr_in_call_leave(SLR_IN_CALL));
    for (unsigned i = 0; i < SLR_IN_CALL; i++)
        cr_assert_not(slr_in_call_leave(entry[i]));
}

/* Another one's call, and a GEMM, keep their results. */
Test(in_call, a_communicator_tells_its_own_calls_at_once)
{
    static const char a, b;
    const struct slr_comm *one = (const void *)&a, *other = (const void *)&b;
    uint64_t since = 1;
    unsigned gemm = slr_in_call_enter(here, NULL), own = slr_in_call_enter(here, one),
             others = slr_in_call_enter(here, other);
    cr_assert(slr_in_call_tell_own(one, 1000, &since));
    cr_assert_eq(since, 0);
    cr_assert(slr_in_call_tell_own(one, 1300, &since));
    cr_assert_eq(since, 300);
    cr_assert_not(slr_in_call_leave(own));
    cr_assert_not(slr_in_call_tell_own(one, 1400, &since));
    cr_assert(slr_in_call_leave(others));
    cr_assert(slr_in_call_leave(gemm));
    own = slr_in_call_enter(here, one);
    cr_assert(slr_in_call_tell_own(one, 1500, &since));
    cr_assert_eq(since, 0, "another call");
    cr_assert_not(slr_in_call_leave(own));
}

static _Atomic unsigned errors;
static _Atomic bool over;

static void *calls(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        unsigned entry = slr_in_call_enter(here, NULL);
        for (volatile unsigned j = 0; j < i % 64; j++)
            ;
        if (!slr_in_call_leave(entry))
            atomic_fetch_add(&errors, 1);
    }
    return NULL;
}

static bool errors_become(unsigned n)
{
    struct timespec pause = {.tv_nsec = 10000};
    for (int i = 0; i < 50000 && atomic_load(&errors) < n; i++)
        nanosleep(&pause, NULL);
    return atomic_load(&errors) == n;
}

#define ENOUGH 500

/* Every two looks a call that is in is told: each of them returns the error, and no other does, whenever it
 * leaves. */
Test(in_call, a_call_leaves_while_it_is_told)
{
    pthread_t thread;
    unsigned told = 0;
    uint64_t now = 0;
    cr_assert_eq(pthread_create(&thread, NULL, calls, NULL), 0);
    /* Enough to meet a call that leaves: on a busy machine the other thread may not even have begun by then. */
    const uint64_t end = slr_now_ms() + 20000;
    for (unsigned i = 0; told < 3000 && (i < 300000 || (told < ENOUGH && slr_now_ms() < end)); i++) {
        if (i % 1000 == 999 && told < ENOUGH)
            sched_yield();
        now += STUCK_MS;
        if (slr_in_call_tell(here, now, STUCK_MS) != SLR_IN_CALL_NONE)
            cr_assert(errors_become(++told), "%u told, %u returned the error", told, atomic_load(&errors));
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    cr_assert_eq(atomic_load(&errors), told);
    cr_assert_gt(told, 0, "nobody was in for two looks: this test shows nothing");
}
