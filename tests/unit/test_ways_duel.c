/* SPDX-License-Identifier: Apache-2.0 */
/* How long the turns of a duel are, and what they tell. */
#include <criterion/criterion.h>
#include "plugin/trials/trials_impl.h"

/* Turns of a duel are whole iterations, where these are no longer than a turn may be. */
Test(ways, turns_of_whole_iterations)
{
    cr_expect_eq(slr_duel_run(1, 0, false, 0, 0), SLR_DUEL_FIRST + 8);
    cr_expect_eq(slr_duel_run(1, 0, false, 7, 0), SLR_DUEL_FIRST + 14);
    cr_expect_eq(slr_duel_run(40, 0, true, 40, 0), SLR_DUEL_FIRST + 80);
    cr_expect_eq(slr_duel_run(40, 0, true, 512, 0), SLR_DUEL_FIRST + 512);
    cr_expect_eq(slr_duel_run(200, 0, true, 200, 0), SLR_DUEL_FIRST + 400, "fewer, but whole ones");
    cr_expect_eq(slr_duel_run(40, 0, true, 513, 0), SLR_DUEL_FIRST + 80);
    cr_expect_eq(slr_duel_run(4, 0, true, 4, 48), SLR_DUEL_FIRST + 48);
    cr_expect_eq(slr_duel_run(4, 0, true, 5, 48), SLR_DUEL_FIRST + 50);
    cr_expect_eq(slr_duel_run(4, 0, true, 0, 1000), SLR_DUEL_FIRST + 512);
    cr_expect_eq(slr_duel_run(4, 0, true, 200, 1000), SLR_DUEL_FIRST + 400);
}

static uint32_t iteration_of(const char *before, const char *calls, int times)
{
    struct slr_trial_calls of = {.calls = 0};
    for (; *before; before++)
        slr_trial_calls_add(&of, (uint64_t)*before);
    for (int i = 0; i < times; i++)
        for (const char *c = calls; *c; c++)
            slr_trial_calls_add(&of, (uint64_t)*c);
    return slr_trial_calls_period(&of, 0);
}

Test(ways, the_period_of_calls)
{
    cr_expect_eq(iteration_of("", "", 0), 0);
    cr_expect_eq(iteration_of("", "a", 2), 0);
    cr_expect_eq(iteration_of("", "a", 3), 1);
    cr_expect_eq(iteration_of("xyz", "agagagagbbgbbgbbgbbgagagagag", 2), 0);
    cr_expect_eq(iteration_of("xyz", "agagagagbbgbbgbbgbbgagagagag", 3), 28, "no layer's");
    cr_expect_eq(iteration_of("xyz", "agagagagbbgbbgbbgbbgagagagag", 300), 28, "what is kept");
    cr_expect_eq(iteration_of("xyzxyzxyzxyzxyzxyzxyz", "agb", 3), 0, "it is the lesser part");
}

/* ---- the turns of a duel ---- */

static struct slr_block_pairs rounds_of(const float ring[3], const float nccl[3], uint32_t rounds)
{
    struct slr_block_pairs pairs = {0};
    float ms[2][SLR_TRIAL_ROUNDS] = {{0}};
    for (uint32_t i = 0; i < rounds; i++) {
        ms[SLR_WAY_RING][i] = ring[i];
        ms[SLR_WAY_NCCL][i] = nccl[i];
    }
    slr_blocks_add(&pairs, ms, rounds);
    return pairs;
}

static int judged(const float ring[3], const float nccl[3], uint32_t rounds)
{
    const struct slr_block_pairs pairs = rounds_of(ring, nccl, rounds);
    return slr_blocks_judge(&pairs, false);
}

/* With two degrees of freedom the mean has to be 1.09 times what the differences scatter by. */
Test(ways, a_duel_is_decided_by_what_is_certain)
{
    const float same[3] = {10, 10, 10}, less[3] = {9, 9, 9}, hardly[3] = {9.99f, 9.99f, 9.99f}, none[3] = {9, 0, 8},
                unlike[3] = {10, 20, 30}, less_of_it[3] = {9, 18, 27}, unsteady[3] = {9, 11, 9},
                just[3] = {9.4f, 9, 8.6f}, barely[3] = {9.6f, 9, 7.6f}, not_quite[3] = {9.7f, 9, 7};
    cr_expect_eq(judged(less, same, 3), SLR_WAY_RING);
    cr_expect_eq(judged(same, less, 3), SLR_WAY_NCCL);
    cr_expect_eq(judged(less_of_it, unlike, 3), SLR_WAY_RING, "however unlike the rounds are");
    cr_expect_eq(judged(same, same, 3), -1);
    cr_expect_eq(judged(hardly, same, 3), -1, "less than clocks tell");
    cr_expect_eq(judged(unsteady, same, 3), -1);
    cr_expect_eq(judged(none, same, 3), -1, "0.11, 0.22: of two the mean has to be 2.2 times");
    cr_expect_eq(judged(less, same, 1), -1);
    cr_expect_eq(judged(just, same, 3), SLR_WAY_RING, "0.6, 1.0, 1.4: the mean is 2.5 times what they scatter by");
    cr_expect_eq(judged(barely, same, 3), SLR_WAY_RING, "0.4, 1.0, 2.4: 1.17 of what they scatter by");
    cr_expect_eq(judged(not_quite, same, 3), -1, "0.3, 1.0, 3.0: 0.96");
}

/* What a duel could not tell another one like it does, with the first one's rounds; of many one in a hundred. */
Test(ways, what_duels_have_shown_adds_up)
{
    const float same[3] = {10, 10, 10}, not_quite[3] = {9.7f, 9, 7}, steady_one[3] = {9.4f, 9, 8.6f};
    struct slr_block_pairs pairs = rounds_of(not_quite, same, 3);
    float ms[2][SLR_TRIAL_ROUNDS] = {{8.5f, 8.5f, 8.5f}, {10, 10, 10}};
    cr_expect_eq(slr_blocks_judge(&pairs, false), -1);
    slr_blocks_add(&pairs, ms, 3);
    cr_expect_eq(slr_blocks_judge(&pairs, true), SLR_WAY_RING, "%u: %g, %g", pairs.n, pairs.mean, pairs.squares);
    pairs = rounds_of(steady_one, same, 3);
    cr_expect_eq(slr_blocks_judge(&pairs, false), SLR_WAY_RING);
    cr_expect_eq(slr_blocks_judge(&pairs, true), -1);
}
