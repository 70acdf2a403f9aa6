/* SPDX-License-Identifier: Apache-2.0 */
/* Which way captured calls of a size go: what the first rank says, on all. */
#include <criterion/criterion.h>
#include <pthread.h>
#include "plugin/trials/ways.h"

#define GATHER (&slr_collectives[SLR_ALL_GATHER])
#define SCATTER (&slr_collectives[SLR_REDUCE_SCATTER])
#define REDUCE (&slr_collectives[SLR_ALL_REDUCE])

#define WORDS 16u
#define THREADS 4
#define SIZES 24 /* more than there are words */

static _Atomic uint64_t word[WORDS];

Test(capture_way, the_first_one_decides_for_good)
{
    cr_assert(slr_capture_way(word, WORDS, 1000, GATHER, true));
    cr_assert(slr_capture_way(word, WORDS, 1000, GATHER, false));
    cr_assert(!slr_capture_way(word, WORDS, 1000, SCATTER, false)); /* a reduce-scatter is another call */
    cr_assert(!slr_capture_way(word, WORDS, 1000, SCATTER, true));
    cr_assert(!slr_capture_way(word, WORDS, 1001, GATHER, false));
    cr_assert(!slr_capture_way(word, WORDS, 1001, GATHER, true));
    cr_assert(slr_capture_way(word, WORDS, 1000, REDUCE, true)); /* and so is an all-reduce */
    cr_assert(slr_capture_way(word, WORDS, 1000, GATHER, false));
}

Test(capture_way, what_has_no_place_is_ncclS)
{
    for (size_t i = 1; i <= WORDS; i++)
        cr_assert(slr_capture_way(word, WORDS, i, GATHER, true));
    cr_assert(!slr_capture_way(word, WORDS, WORDS + 1, GATHER, true));
    cr_assert(slr_capture_way(word, WORDS, WORDS, GATHER, false));
}

struct rank {
    pthread_barrier_t *begin;
    unsigned seed;
    bool wish, says[SIZES];
};

/* Each in an order of its own. */
static void *capture(void *arg)
{
    struct rank *r = arg;
    pthread_barrier_wait(r->begin);
    for (unsigned i = 0; i < SIZES; i++) {
        const unsigned size = (i * 7 + r->seed) % SIZES;
        r->says[size] = slr_capture_way(word, WORDS, size + 1, &slr_collectives[size % 2], r->wish);
    }
    return NULL;
}

Test(capture_way, all_ranks_say_the_same)
{
    for (int turn = 0; turn < 300; turn++) {
        pthread_barrier_t begin;
        pthread_t thread[THREADS];
        struct rank rank[THREADS];
        for (unsigned i = 0; i < WORDS; i++)
            atomic_store(&word[i], 0);
        pthread_barrier_init(&begin, NULL, THREADS);
        for (unsigned i = 0; i < THREADS; i++) {
            rank[i] = (struct rank){.begin = &begin, .seed = i * 5 + (unsigned)turn, .wish = i % 2};
            pthread_create(&thread[i], NULL, capture, &rank[i]);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        for (int i = 1; i < THREADS; i++)
            for (int size = 0; size < SIZES; size++)
                cr_assert(rank[i].says[size] == rank[0].says[size], "size %d in turn %d", size, turn);
        pthread_barrier_destroy(&begin);
    }
}
