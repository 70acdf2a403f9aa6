/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of plugin/comm/agreed_change.h on the real code: one for good, and change after change. Every rank is a
 * coroutine that can be put aside before each access to shared memory. All orders with up to three involuntary changes of rank are
 * run, and many random ones; in each, all ranks must answer alike for every call. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static void point(void);
#define SLR_AGREED_POINT() point()
#include "plugin/comm/agreed_change.c"

enum { RANKS = 3, CALLS = 24, STACK = 1 << 16, AHEAD = 3 };

#define CHANGES UINT_MAX /* as proposers: rank 0 proposes change after change */

struct world {
    int nranks, calls;
    unsigned proposers; /* ranks that propose after every call, one bit each */
    struct slr_agreed_shared shared;
    struct slr_agreed rank[RANKS];
    int value, known[RANKS],
        in_force[RANKS]; /* what belongs to a change: the proposer's, each rank's copy, what it goes by */
    int answered[RANKS][CALLS];
    ucontext_t at[RANKS], main;
    char stack[RANKS][STACK];
    bool done[RANKS], answer[RANKS][CALLS];
    int running, left; /* which coroutine runs, and how many steps more before it is put aside */
    bool inside;       /* a coroutine runs */
};
static struct world w;

static void point(void)
{
    if (!w.inside || --w.left > 0)
        return;
    swapcontext(&w.at[w.running], &w.main);
}

static void end(int r)
{
    w.done[r] = true;
    for (w.left = 1;;)
        point();
}

static void body(int r)
{
    for (int i = 0; i < w.calls; i++) {
        w.answer[r][i] = slr_agreed_call(&w.rank[r]) >= w.rank[r].place;
        if (w.proposers >> r & 1 && !w.rank[r].changes)
            slr_agreed_propose(&w.rank[r]);
    }
    end(r);
}

static void copy_value(void *r)
{
    point();
    w.known[*(int *)r] = w.value;
}

/* Rank 0 proposes a change after every call, with a value of its own. */
static void body_of_changes(int r)
{
    for (int i = 0; i < w.calls; i++) {
        struct slr_agreed *a = &w.rank[r];
        uint64_t now = slr_agreed_call(a);
        if (now == a->place)
            w.in_force[r] = w.known[r];
        w.answered[r][i] = w.in_force[r];
        if (r == 0 && slr_agreed_ready(a)) {
            w.value++; /* in one that nobody has learnt yet, this would be read as belonging to that */
            point();
            if (!slr_agreed_propose(a))
                w.value--;
        }
    }
    end(r);
}

static struct slr_agreed new_rank(struct slr_agreed_shared *shared, int rank, int nranks)
{
    return (struct slr_agreed){.shared = shared, .rank = rank, .nranks = nranks, .ahead = AHEAD, .place = UINT64_MAX};
}

static void set_up(int nranks, int calls, unsigned proposers)
{
    static ucontext_t blank;
    w.nranks = nranks;
    w.calls = calls;
    w.proposers = proposers;
    w.value = 0;
    memset(&w.shared, 0, sizeof w.shared);
    memset(w.known, 0, sizeof w.known);
    memset(w.in_force, 0, sizeof w.in_force);
    for (int r = 0; r < nranks; r++) {
        w.rank[r] = new_rank(&w.shared, r, nranks);
        w.done[r] = false;
        w.at[r] = blank;
        getcontext(&w.at[r]);
        w.at[r].uc_stack.ss_sp = w.stack[r];
        w.at[r].uc_stack.ss_size = STACK;
        makecontext(&w.at[r], (void (*)(void))(proposers == CHANGES ? body_of_changes : body), 1, r);
    }
}

/* So many steps, each up to the next access to shared memory, unless it ends before: a switch of contexts costs more
 * than all that is between two. */
static void run_rank(int r, int steps)
{
    if (steps <= 0 || w.done[r])
        return;
    w.running = r;
    w.left = steps;
    w.inside = true;
    swapcontext(&w.main, &w.at[r]);
    w.inside = false;
}

/* Returns the first call of a change, or -1 when no rank changed. */
static int check(const char *how, uint64_t which)
{
    int place = -1;
    for (int i = 0; i < w.calls; i++) {
        for (int r = 1; r < w.nranks; r++)
            cr_assert_eq(w.answer[r][i], w.answer[0][i], "%s %llu: call %d: rank 0 says %d, rank %d says %d", how,
                         (unsigned long long)which, i, w.answer[0][i], r, w.answer[r][i]);
        if (place < 0 && w.answer[0][i])
            place = i;
        cr_assert(place < 0 || w.answer[0][i], "%s %llu: changed back at call %d", how, (unsigned long long)which, i);
    }
    return place;
}

/* Rank `first` runs; after `gap[i]` steps another one takes over (the `turn[i]`-th next), and so on; then in turns to
 * the end. */
static void run_order(int first, const int *gap, const int *turn, int switches)
{
    int r = first;
    for (int i = 0; i < switches; i++) {
        run_rank(r, gap[i]);
        r = (r + turn[i]) % w.nranks;
    }
    for (int i = 0; i < w.nranks; i++)
        run_rank((r + i) % w.nranks, INT_MAX);
}

Test(narrow, all_orders_with_three_changes, .timeout = 100)
{
    enum { LONGEST = 26 };
    long runs = 0, changed = 0;
    for (int first = 0; first < 4; first++) /* rank that begins, and whether both or rank 0 alone propose */
        for (int a = 0; a < LONGEST; a++)
            for (int b = 0; b < LONGEST; b++)
                for (int c = 0; c < LONGEST; c++) {
                    set_up(2, 11, first < 2 ? 3 : 1);
                    run_order(first % 2, (int[]){a, b, c}, (int[]){1, 1, 1}, 3);
                    changed += check("order", (uint64_t)(((first * LONGEST + a) * LONGEST + b) * LONGEST + c)) >= 0;
                    runs++;
                }
    printf("%ld orders, %ld with a change-over\n", runs, changed);
    cr_assert(changed > 0 && changed < runs, "both outcomes must occur: %ld of %ld", changed, runs);
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

Test(narrow, random_orders_of_three, .timeout = 100)
{
    long changed = 0;
    enum { RUNS = 20000 };
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        uint64_t state = seed * 0x9e3779b97f4a7c15u;
        set_up(3, CALLS, seed % 2 ? 7 : 1);
        for (int left = 3; left > 0;) {
            int r = (int)(next(&state) % 3);
            run_rank(r, (int)(next(&state) % 12));
            left = 0;
            for (int q = 0; q < 3; q++)
                left += !w.done[q];
        }
        changed += check("seed", seed) >= 0;
    }
    printf("%d random orders, %ld with a change-over\n", (int)RUNS, changed);
    cr_assert(changed > 0 && changed < RUNS, "both outcomes must occur: %ld", changed);
}

/* Change after change: all ranks go by the same value at every call, and values come in their order. */
Test(narrow, changes_follow_one_another, .timeout = 100)
{
    static int number[RANKS] = {0, 1, 2};
    long most = 0;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        uint64_t state = seed * 0x9e3779b97f4a7c15u;
        const int nranks = 2 + (int)(seed % 2);
        set_up(nranks, CALLS, CHANGES);
        for (int r = 0; r < nranks; r++) {
            w.rank[r].learn = copy_value;
            w.rank[r].context = &number[r];
            w.rank[r].ahead = 2;
        }
        for (int left = nranks; left > 0;) {
            int r = (int)(next(&state) % (uint64_t)nranks);
            run_rank(r, (int)(next(&state) % (seed % 3 ? 40 : 8)));
            left = 0;
            for (int q = 0; q < nranks; q++)
                left += !w.done[q];
        }
        for (int i = 0; i < CALLS; i++) {
            for (int r = 1; r < nranks; r++)
                cr_assert_eq(w.answered[r][i], w.answered[0][i], "seed %llu: call %d: %d and %d",
                             (unsigned long long)seed, i, w.answered[0][i], w.answered[r][i]);
            cr_assert(i == 0 || w.answered[0][i] == w.answered[0][i - 1] ||
                      w.answered[0][i] == w.answered[0][i - 1] + 1);
        }
        most = w.answered[0][CALLS - 1] > most ? w.answered[0][CALLS - 1] : most;
    }
    cr_assert(most >= 3, "at most %ld changes in a run", most);
}

Test(narrow, a_rank_that_never_calls_keeps_all_as_they_are)
{
    set_up(2, CALLS, 3);
    run_rank(0, INT_MAX);
    for (int i = 0; i < CALLS; i++)
        cr_assert_not(w.answer[0][i]);
}

/* Outside the coroutines. */
Test(narrow, without_shared_memory_nothing_changes)
{
    struct slr_agreed a = new_rank(NULL, 0, 2);
    for (int i = 0; i < 100; i++) {
        cr_assert_lt(slr_agreed_call(&a), a.place);
        cr_assert_not(slr_agreed_propose(&a));
    }
}
