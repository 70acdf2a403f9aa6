/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/trials/ways.h and samples.c: which way a call goes, what its times are, and how a way is chosen. */
#include <criterion/criterion.h>
#include <string.h>
#include "plugin/trials/trials_impl.h"
#include "plugin/trials/ways.h"

Test(ways, parts)
{
    const uint32_t two[SLR_WAYS] = {0, 0, 1, 2, 3, 4, 6}, eight[SLR_WAYS] = {0, 0, 1, 8, 12, 16, 24};
    for (int w = 0; w < SLR_WAYS; w++) {
        cr_expect_eq(slr_way_parts(w, 2), two[w]);
        cr_expect_eq(slr_way_parts(w, 8), eight[w]);
    }
    cr_expect_eq(slr_way_parts(SLR_WAY_PARTS + 1, 3), 5);
}

/* Each pair of a state and an event is in the table, or can not be. */
Test(ways, a_site_goes_from_state_to_state)
{
    static const char *const events = "begin post due not_due choose end give_up";
    static const struct {
        enum slr_site_state from;
        enum slr_site_event event;
        enum slr_site_state to;
    } can[] = {
        {SLR_SITE_TRYING, SLR_SITE_BEGIN, SLR_SITE_TRYING},
        {SLR_SITE_TRYING, SLR_SITE_POST, SLR_SITE_POSTED},
        {SLR_SITE_TRYING, SLR_SITE_END, SLR_SITE_DECIDED},
        {SLR_SITE_TRYING, SLR_SITE_GIVE_UP, SLR_SITE_GIVEN_UP},
        {SLR_SITE_POSTED, SLR_SITE_BEGIN, SLR_SITE_TRYING},
        {SLR_SITE_POSTED, SLR_SITE_DUE, SLR_SITE_WAITING},
        {SLR_SITE_POSTED, SLR_SITE_NOT_DUE, SLR_SITE_POSTED},
        {SLR_SITE_POSTED, SLR_SITE_CHOOSE, SLR_SITE_DECIDED},
        {SLR_SITE_POSTED, SLR_SITE_GIVE_UP, SLR_SITE_GIVEN_UP},
        {SLR_SITE_WAITING, SLR_SITE_BEGIN, SLR_SITE_TRYING},
        {SLR_SITE_WAITING, SLR_SITE_DUE, SLR_SITE_WAITING},
        {SLR_SITE_WAITING, SLR_SITE_NOT_DUE, SLR_SITE_POSTED},
        {SLR_SITE_WAITING, SLR_SITE_GIVE_UP, SLR_SITE_GIVEN_UP},
        {SLR_SITE_DECIDED, SLR_SITE_BEGIN, SLR_SITE_TRYING},
        {SLR_SITE_DECIDED, SLR_SITE_DUE, SLR_SITE_AGAIN},
        {SLR_SITE_DECIDED, SLR_SITE_GIVE_UP, SLR_SITE_GIVEN_UP},
        {SLR_SITE_AGAIN, SLR_SITE_BEGIN, SLR_SITE_TRYING},
        {SLR_SITE_AGAIN, SLR_SITE_DUE, SLR_SITE_AGAIN},
        {SLR_SITE_AGAIN, SLR_SITE_NOT_DUE, SLR_SITE_DECIDED},
        {SLR_SITE_GIVEN_UP, SLR_SITE_BEGIN, SLR_SITE_GIVEN_UP},
        {SLR_SITE_GIVEN_UP, SLR_SITE_END, SLR_SITE_GIVEN_UP},
    };
    for (int from = 0; from < SLR_SITE_STATES; from++)
        for (int event = 0; event < SLR_SITE_EVENTS; event++) {
            enum slr_site_state state = (enum slr_site_state)from, to = state;
            bool may = false;
            for (size_t i = 0; i < sizeof can / sizeof *can; i++)
                if ((int)can[i].from == from && (int)can[i].event == event) {
                    may = true;
                    to = can[i].to;
                }
            cr_expect(slr_site_next(&state, (enum slr_site_event)event) == may && state == to,
                      "state %d, event %d of %s: %d", from, event, events, (int)state);
        }
}

Test(ways, each_way_has_its_turns)
{
    const struct slr_turns turns = {10, 3, 0, SLR_STAGE_WAYS, false, 0}, none = {10, 0, 0, SLR_STAGE_WAYS, false, 0};
    unsigned calls[SLR_WAYS] = {0}, counted[SLR_WAYS] = {0};
    int way, before = -1;
    uint32_t round;
    bool measured;
    for (uint64_t n = 0; n < 200; n++) {
        bool tried = slr_way_of_call(n, &turns, &way, &round, &measured);
        cr_assert_eq(tried, n >= 10 && n < 10 + 3 * SLR_WAYS * SLR_TRIAL_RUN);
        cr_assert(!tried || round == (n - 10) / (SLR_WAYS * SLR_TRIAL_RUN));
        cr_assert(tried || (way == SLR_WAY_RING && !measured));
        cr_assert(!measured || way == before, "the first call of a way is not measured");
        calls[way] += tried;
        counted[way] += measured;
        before = way;
    }
    for (int w = 0; w < SLR_WAYS; w++)
        cr_expect(calls[w] == 12 && counted[w] == 9, "way %d: %u, %u", w, calls[w], counted[w]);
    cr_assert_not(slr_way_of_call(10, &none, &way, &round, &measured), "no rounds: nothing is tried");
}

/* Longer runs of two ways, of which more is left out. */
Test(ways, a_duel)
{
    const struct slr_turns turns = {10, 3, 0, SLR_STAGE_DUEL, false, slr_duel_run(1, 0, false, 0, 0)};
    unsigned calls[SLR_WAYS] = {0}, counted[SLR_WAYS] = {0};
    int way;
    uint32_t round;
    bool measured;
    for (uint64_t n = 0; n < 200; n++) {
        bool tried = slr_way_of_call(n, &turns, &way, &round, &measured);
        cr_assert_eq(tried, n >= 10 && n < 10 + 72);
        cr_assert(!tried || (round == (n - 10) / 24 && round < 3));
        cr_assert(tried || (way == SLR_WAY_RING && !measured));
        cr_assert(!tried || way == slr_duel_way((n - 10) / 12));
        cr_assert_eq(measured, tried && (n - 10) % 12 >= 4);
        calls[way] += tried;
        counted[way] += measured;
    }
    for (int w = 0; w < SLR_WAYS; w++)
        cr_expect(calls[w] == (slr_stage_has(SLR_STAGE_DUEL, w) ? 36 : 0) && counted[w] == calls[w] / 3 * 2,
                  "way %d: %u, %u", w, calls[w], counted[w]);
    cr_expect_eq(slr_trials_end(&turns), 82);
}

/* Each GEMM of the period has each way once in each round, but for what is left out. */
static void turns_of_whole_periods(enum slr_stage stage, uint32_t period, bool sparse)
{
    const struct slr_turns turns = {7, 3, period, stage, sparse, slr_duel_run(1, period, sparse, 0, 0)};
    unsigned counted[SLR_WAYS][3][SLR_TRIAL_PERIOD] = {{{0}}};
    uint32_t round;
    bool measured;
    int way;
    for (uint64_t n = 0; n < slr_trials_end(&turns); n++)
        if (slr_way_of_call(n, &turns, &way, &round, &measured) && measured)
            counted[way][round][n % period]++;
    for (int w = 0; w < SLR_WAYS; w++)
        for (unsigned r = 0; r < 3; r++)
            for (unsigned i = 0; i < period && slr_stage_has(stage, w); i++)
                cr_assert(counted[w][r][i] > 0 && counted[w][r][i] <= SLR_SAMPLES, "period %u, way %d: %u", period, w,
                          counted[w][r][i]);
}

Test(ways, turns_have_whole_periods)
{
    for (uint32_t period = 1; period <= SLR_TRIAL_PERIOD; period++) {
        for (int sparse = 0; sparse <= 1; sparse++) {
            turns_of_whole_periods(SLR_STAGE_WAYS, period, sparse);
            turns_of_whole_periods(SLR_STAGE_DUEL, period, sparse);
        }
    }
}

static uint32_t period_of(const char *gemms)
{
    struct slr_trial_gemms g = {.calls = 0};
    for (; *gemms; gemms++)
        slr_trial_gemms_add(&g, (uint64_t)*gemms);
    return slr_trial_gemms_period(&g);
}

Test(ways, the_period_of_gemms)
{
    cr_expect_eq(period_of(""), 0);
    cr_expect_eq(period_of("aaaaaaaaaaa"), 0, "too few");
    cr_expect_eq(period_of("aaaaaaaaaaaa"), 1);
    cr_expect_eq(period_of("zzzzzabababababababababababab"), 2);
    cr_expect_eq(period_of("abcabccba"
                           "abcabccba"
                           "abcabccba"),
                 9);
    cr_expect_eq(period_of("abcdefghijkl"
                           "abcdefghijkl"),
                 12);
    cr_expect_eq(period_of("abcdefghijklm"
                           "abcdefghijklm"
                           "abcdefghijklm"),
                 0, "longer than is looked for");
    cr_expect_eq(period_of("abababababac"), 0);
    cr_expect_eq(period_of("abcdeabcdeabcd"), 0, "not three times");
    cr_expect_eq(period_of("abcdeabcdeabcde"), 5);
    cr_expect_eq(period_of("bbabababababababababababab"), 2, "the latest calls count");
}

Test(ways, stages_come_one_after_the_other)
{
    for (uint32_t again = 0; again < 10; again++) {
        const uint32_t next = slr_stage_next_trials(again);
        cr_expect(next > again && next <= again + 2 && slr_stage_of(next) == SLR_STAGE_WAYS);
        cr_expect_eq(slr_stage_of(again), again % 2 ? SLR_STAGE_DUEL : SLR_STAGE_WAYS);
    }
}

Test(ways, median)
{
    float odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    cr_expect_eq(slr_trials_median(odd, 3), 2);
    cr_expect_eq(slr_trials_median(even, 4), 2.5f);
}

/* As if every round had been like this one. */
static struct slr_trial_row steady(struct slr_trial_row row)
{
    for (int w = 0; w < SLR_WAYS; w++)
        row.worst[w] = row.ms[w] / row.ms[SLR_WAY_RING];
    return row;
}
#define ROW(g, s, ...) steady((struct slr_trial_row){.gemm = (g), .site = (s), .calls = 9, .ms = {__VA_ARGS__}})
#define COUNT(rows) ((uint32_t)(sizeof(rows) / sizeof *(rows)))

static struct slr_trial_choice choose(const struct slr_trial_row *first, uint32_t n, const struct slr_trial_row *second,
                                      uint32_t m, uint32_t site)
{
    struct slr_trial_choice choice = {.rows = 0};
    const struct slr_trial_row *const rows[] = {first, second};
    slr_trials_choose(rows, (const uint32_t[]){n, m}, 2, site, SLR_WAY_RING, true, &choice);
    return choice;
}

Test(ways, the_slowest_rank_counts)
{
    const struct slr_trial_row a[] = {ROW(7, 1, 10, 20, 8, 9, 9, 9, 9)}, b[] = {ROW(7, 1, 10, 20, 12, 9.5f, 9, 9, 9)};
    struct slr_trial_choice c = choose(a, 1, b, 1, 1);
    cr_assert(c.rows == 1 && c.row[0].gemm == 7 && c.row[0].site == 1);
    cr_expect_eq(c.row[0].way, SLR_WAY_PARTS + 1, "the fastest on one rank is slow on the other");
    cr_expect_eq(c.site_way[1], SLR_WAY_RING);
}

/* The ring without trials stays, and NCCL has what ties with it. */
Test(ways, another_has_to_be_clearly_better)
{
    const struct slr_trial_row close[] = {ROW(7, 0, 10, 10.1f, 9.95f, 9.92f, 10, 10, 10)};
    struct slr_trial_choice c = choose(close, 1, close, 1, 0);
    cr_expect(c.rows == 0 && c.site_way[0] == SLR_WAY_NCCL);
    const struct slr_trial_row better[] = {ROW(7, 0, 10, 10.3f, 9.95f, 9.92f, 10, 10, 10)};
    c = choose(better, 1, better, 1, 0);
    cr_expect(c.rows == 0 && c.site_way[0] == SLR_WAY_RING);
}

/* One round in which it was not better: chance. */
Test(ways, a_way_over_the_ring_has_to_be_better_in_every_round)
{
    struct slr_trial_row row = ROW(7, 0, 10, 20, 5, 9, 8, 9, 9);
    row.worst[2] = 1.2f;
    struct slr_trial_choice c = choose(&row, 1, &row, 1, 0);
    cr_expect(c.rows == 1 && c.row[0].way == 4, "the next best");
    row = ROW(7, 0, 10, 9.2f, 11, 11, 11, 11, 11);
    row.worst[SLR_WAY_NCCL] = 1.5f;
    cr_expect_eq(choose(&row, 1, &row, 1, 0).site_way[0], SLR_WAY_NCCL, "of NCCL medians count alone");
}

static bool is_decided(float ring, float nccl, float parts, int way)
{
    const struct slr_trial_row row = ROW(7, 0, ring, nccl, ring, ring, parts, ring, ring), *const rows[] = {&row};
    struct slr_trial_choice choice = {.rows = 0};
    bool decided = slr_trials_choose(rows, (const uint32_t[]){1}, 1, 0, SLR_WAY_RING, true, &choice);
    cr_expect_eq(choice.site_way[0], way, "ring %g, NCCL %g, parts %g", (double)ring, (double)nccl, (double)parts);
    return decided;
}

Test(ways, what_is_close_takes_a_duel)
{
    cr_expect_not(is_decided(10, 10, 10, SLR_WAY_NCCL));
    cr_expect_not(is_decided(10, 8.6f, 10, SLR_WAY_NCCL));
    cr_expect_not(is_decided(8.6f, 10, 8.6f, SLR_WAY_RING));
    cr_expect_not(is_decided(12, 10, 8.6f, SLR_WAY_RING));
    cr_expect(is_decided(10, 8.4f, 10, SLR_WAY_NCCL));
    cr_expect(is_decided(8.4f, 10, 8.4f, SLR_WAY_RING));
    cr_expect(is_decided(12, 10, 8.4f, SLR_WAY_RING), "the best way over the ring counts");
    cr_expect_not(is_decided(12, 9, 9.5f, SLR_WAY_NCCL));
}

/* A row of a duel. */
#define DUEL(g, ring, nccl) ROW(g, 0, ring, nccl)

static int judge(const struct slr_trial_row *first, uint32_t n, const struct slr_trial_row *second, uint32_t m,
                 int before)
{
    struct slr_trial_choice choice = {.rows = 1, .row = {{7, 0, 3}}, .site_way = {before}};
    const struct slr_trial_row *const rows[] = {first, second};
    slr_trials_judge(rows, (const uint32_t[]){n, m}, 2, 0, &choice);
    cr_expect(choice.rows == 1 && choice.row[0].way == 3, "what was chosen of rows stays");
    return choice.site_way[0];
}

/* A site of whose calls some come with a GEMM: of the others NCCL has to be twice as fast. */
Test(ways, calls_without_a_GEMM_are_not_decided_as_soon)
{
    const struct slr_trial_row rows[][2] = {{ROW(0, 0, 18, 10), ROW(7, 0, 8, 10, 8, 8, 8, 8, 8)},
                                            {ROW(0, 0, 30, 10), ROW(7, 0, 8, 10, 8, 8, 8, 8, 8)},
                                            {ROW(0, 0, 8, 10), ROW(7, 0, 8, 10, 8, 8, 8, 8, 8)}};
    static const struct {
        enum slr_verdict verdict;
        int way;
    } expected[] = {
        {SLR_VERDICT_DUEL, SLR_WAY_NCCL}, {SLR_VERDICT_CHOSEN, SLR_WAY_NCCL}, {SLR_VERDICT_CHOSEN, SLR_WAY_RING}};
    for (int i = 0; i < 3; i++) {
        struct slr_trial_choice choice = {.rows = 0};
        const struct slr_trial_row *const all[] = {rows[i]};
        cr_expect_eq(slr_trials_choose(all, (const uint32_t[]){2}, 1, 0, SLR_WAY_RING, true, &choice),
                     expected[i].verdict);
        cr_expect_eq(choice.site_way[0], expected[i].way);
    }
}

/* What the GEMM before has computed is sent: nothing is known to wait for that either. */
Test(ways, calls_behind_a_GEMM_are_not_decided_as_soon)
{
    const struct slr_trial_row far = ROW(7, 0, 18, 10, 18, 18, 16, 18, 18),
                               farther = ROW(7, 0, 30, 10, 30, 30, 21, 30, 30);
    const struct slr_trial_row *const rows[] = {&far}, *const others[] = {&farther};
    struct slr_trial_choice choice = {.rows = 0};
    const uint32_t one[] = {1};
    cr_expect_eq(slr_trials_choose(rows, one, 1, 0, SLR_WAY_NCCL, true, &choice), SLR_VERDICT_CHOSEN);
    cr_expect_eq(slr_trials_choose(rows, one, 1, 0, SLR_WAY_NCCL, false, &choice), SLR_VERDICT_DUEL);
    cr_expect_eq(slr_trials_choose(others, one, 1, 0, SLR_WAY_NCCL, false, &choice), SLR_VERDICT_CHOSEN);
    cr_expect_eq(choice.site_way[0], SLR_WAY_NCCL);
}

/* One rank's is enough. */
Test(ways, times_of_the_host_have_to_be_further_apart)
{
    struct slr_trial_row a = ROW(7, 0, 10, 16, 10, 10, 10, 10, 10), b = a;
    b.of_host = 1;
    const struct slr_trial_row *const rows[] = {&a, &b}, *const device[] = {&a, &a};
    struct slr_trial_choice choice = {.rows = 0};
    cr_expect(slr_trials_choose(device, (const uint32_t[]){1, 1}, 2, 0, SLR_WAY_RING, true, &choice));
    cr_expect_not(slr_trials_choose(rows, (const uint32_t[]){1, 1}, 2, 0, SLR_WAY_RING, true, &choice));
    a.ms[SLR_WAY_NCCL] = b.ms[SLR_WAY_NCCL] = 21;
    cr_expect(slr_trials_choose(rows, (const uint32_t[]){1, 1}, 2, 0, SLR_WAY_RING, true, &choice));
    a.ms[SLR_WAY_NCCL] = b.ms[SLR_WAY_NCCL] = 10.4f;
    slr_trials_judge(device, (const uint32_t[]){1, 1}, 2, 0, &choice);
    cr_expect_eq(choice.site_way[0], SLR_WAY_RING);
    slr_trials_judge(rows, (const uint32_t[]){1, 1}, 2, 0, &choice);
    cr_expect_eq(choice.site_way[0], SLR_WAY_NCCL);
}

Test(ways, a_duel_is_nccls_unless_the_ring_is_better_by_two_percent)
{
    const struct slr_trial_row tie = DUEL(7, 10, 10), close = DUEL(7, 9.85f, 10), ring = DUEL(7, 9.75f, 10);
    cr_expect_eq(judge(&tie, 1, &tie, 1, SLR_WAY_RING), SLR_WAY_NCCL);
    cr_expect_eq(judge(&close, 1, &close, 1, SLR_WAY_RING), SLR_WAY_NCCL);
    cr_expect_eq(judge(&ring, 1, &ring, 1, SLR_WAY_NCCL), SLR_WAY_RING);
    cr_expect_eq(judge(&ring, 1, &close, 1, SLR_WAY_NCCL), SLR_WAY_NCCL, "the slowest rank counts");
}

Test(ways, a_duel_is_about_all_rows_together)
{
    const struct slr_trial_row rows[] = {DUEL(7, 9, 10), DUEL(8, 5.2f, 5)},
                               worse[] = {DUEL(7, 9, 10), DUEL(8, 6.2f, 5)};
    cr_expect_eq(judge(rows, 2, rows, 2, SLR_WAY_NCCL), SLR_WAY_RING);
    cr_expect_eq(judge(worse, 2, worse, 2, SLR_WAY_RING), SLR_WAY_NCCL);
}

Test(ways, a_row_that_a_rank_has_not_measured_does_not_count_in_a_duel)
{
    const struct slr_trial_row both[] = {DUEL(7, 9, 10), DUEL(8, 9, 5)}, one[] = {DUEL(7, 9, 10), DUEL(8, 0, 5)};
    cr_expect_eq(judge(both, 2, both, 2, SLR_WAY_RING), SLR_WAY_NCCL);
    cr_expect_eq(judge(both, 2, one, 2, SLR_WAY_NCCL), SLR_WAY_RING);
    cr_expect_eq(judge(both, 2, both, 1, SLR_WAY_RING), SLR_WAY_NCCL, "one that a rank does not have does");
    for (int way = SLR_WAY_RING; way <= SLR_WAY_NCCL; way++) {
        const struct slr_trial_row none = DUEL(7, 0, 0);
        cr_expect_eq(judge(&none, 1, both, 1, way), way, "none counts");
        cr_expect_eq(judge(NULL, 0, NULL, 0, way), way);
    }
}

Test(ways, nccl_has_to_beat_the_best_way_over_the_ring_in_all_rows_together)
{
    const struct slr_trial_row rows[] = {ROW(7, 0, 10, 8.5f, 9, 7, 9, 9, 9), ROW(0, 0, 4, 3, 4, 4, 4, 4, 4)};
    struct slr_trial_choice c = choose(rows, 2, rows, 2, 0);
    cr_expect_eq(c.site_way[0], SLR_WAY_RING, "8.5 + 3 is not better than 7 + 4");
    const struct slr_trial_row slow[] = {ROW(7, 0, 10, 8, 9, 9, 9, 9, 9), ROW(0, 0, 4, 3, 4, 4, 4, 4, 4)};
    c = choose(slow, 2, slow, 2, 0);
    cr_expect_eq(c.site_way[0], SLR_WAY_NCCL);
}

Test(ways, without_a_gemm_parts_mean_nothing)
{
    const struct slr_trial_row rows[] = {ROW(0, 0, 10, 11, 5, 5, 5, 5, 5)};
    struct slr_trial_choice c = choose(rows, 1, rows, 1, 0);
    cr_expect(c.rows == 0 && c.site_way[0] == SLR_WAY_RING);
}

Test(ways, a_row_of_one_rank_counts_and_one_that_is_not_whole_does_not)
{
    const struct slr_trial_row a[] = {ROW(7, 0, 10, 20, 5, 9, 9, 9, 9)}, b[] = {ROW(8, 0, 10, 1, 5, 0, 9, 9, 9)};
    struct slr_trial_choice c = choose(a, 1, b, 1, 0);
    cr_expect(c.rows == 1 && c.row[0].gemm == 7 && c.row[0].way == SLR_WAY_WHOLE);
    cr_expect_eq(c.site_way[0], SLR_WAY_RING, "NCCL was not measured with the others");
}

Test(ways, other_sites_are_left_alone)
{
    const struct slr_trial_row rows[] = {ROW(7, 0, 10, 1, 5, 9, 9, 9, 9), ROW(7, 1, 10, 20, 9, 9, 9, 9, 5)};
    struct slr_trial_choice c = choose(rows, 2, rows, 2, 1);
    cr_expect(c.rows == 1 && c.row[0].site == 1 && c.row[0].way == SLR_WAYS - 1);
    cr_expect_eq(c.site_way[0], SLR_WAY_RING);
}

Test(ways, a_new_choice_takes_the_place_of_the_old)
{
    struct slr_trial_choice choice = {.rows = 3, .row = {{7, 0, 2}, {7, 1, 3}, {9, 0, 4}}};
    const struct slr_trial_row row = ROW(9, 0, 10, 20, 9, 9, 9, 9, 5), *const rows[] = {&row};
    slr_trials_choose(rows, (const uint32_t[]){1}, 1, 0, SLR_WAY_RING, true, &choice);
    cr_expect(choice.rows == 3 && choice.row[0].gemm == 7 && choice.row[0].way == 2, "it was not measured");
    cr_expect(choice.row[1].site == 1 && choice.row[1].way == 3);
    cr_expect(choice.row[2].gemm == 9 && choice.row[2].way == SLR_WAYS - 1);
}

Test(ways, more_rows_than_there_is_room)
{
    struct slr_trial_row rows[SLR_TRIAL_SITES * SLR_TRIAL_ROWS + 3];
    for (uint32_t i = 0; i < COUNT(rows); i++)
        rows[i] = ROW(i + 1, 0, 10, 20, 5, 9, 9, 9, 9);
    struct slr_trial_choice c = choose(rows, COUNT(rows), rows, COUNT(rows), 0);
    cr_expect_eq(c.rows, SLR_TRIAL_SITES * SLR_TRIAL_ROWS);
}

/* Every way took 2 ms on the device in round 0 and 3 in round 1, parts half as long; 10 ms from call to call. */
static struct slr_samples measured(unsigned idle_in_ten)
{
    struct slr_samples row = {.gemm = 7};
    unsigned n = 0;
    for (int w = 0; w < SLR_WAYS; w++)
        for (uint32_t round = 0; round < 2; round++)
            for (int i = 0; i < 5; i++) {
                const struct slr_clock clock = {
                    .way = w, .round = round, .period = (float)(10 + w), .idle = n++ % 10 < idle_in_ten};
                slr_samples_add(&row, &clock, (float)(2 + round) / (w >= SLR_WAY_PARTS ? 2 : 1));
            }
    return row;
}

Test(ways, times_are_the_devices)
{
    struct slr_samples row = measured(5);
    cr_assert(slr_samples_tried(&row, 2) && !slr_samples_of_host(&row, 2));
    struct slr_trial_row posted = slr_samples_row(&row, 2, SLR_WAY_RING);
    cr_expect(posted.gemm == 7 && posted.calls == SLR_WAYS * 2 * 5);
    cr_expect(posted.ms[SLR_WAY_RING] == 2.5f && posted.ms[SLR_WAY_PARTS] == 1.25f);
    cr_expect(posted.worst[SLR_WAY_NCCL] == 1 && posted.worst[SLR_WAY_PARTS] == 0.5f);
}

Test(ways, a_program_that_waits_for_the_host_is_measured_there)
{
    struct slr_samples row = measured(10);
    cr_assert(slr_samples_of_host(&row, 2));
    struct slr_trial_row posted = slr_samples_row(&row, 2, SLR_WAY_RING);
    cr_expect(posted.ms[SLR_WAY_RING] == 10 && posted.ms[SLR_WAY_NCCL] == 11);
    cr_expect(posted.worst[SLR_WAY_NCCL] > 1.0999f && posted.worst[SLR_WAY_NCCL] < 1.1001f);
}

/* By the device all ways are alike; but in one the program waits for the host. */
Test(ways, one_way_that_waits_for_the_host_is_enough)
{
    struct slr_samples row = measured(0);
    const float period[SLR_WAYS] = {[SLR_WAY_RING] = 9, [SLR_WAY_NCCL] = 1};
    slr_samples_forget(&row);
    for (int w = 0; w < SLR_WAYS; w++)
        for (int i = 0; i < 3; i++) {
            const struct slr_clock clock = {.way = w, .period = period[w], .idle = w == SLR_WAY_RING};
            slr_samples_add(&row, &clock, 2);
        }
    struct slr_trial_row posted = slr_samples_row(&row, 1, SLR_WAY_RING);
    cr_expect(slr_samples_of_host(&row, 1) && posted.ms[SLR_WAY_RING] == 9);
    cr_expect(posted.ms[SLR_WAY_NCCL] == 2, "where the host runs ahead it is the device's");
}

Test(ways, rounds_that_are_missing)
{
    struct slr_samples row = measured(0); /* two rounds */
    cr_expect(slr_samples_tried(&row, 3), "most are there");
    cr_expect_not(slr_samples_tried(&row, 4));
    cr_expect_eq(slr_samples_row(&row, 4, SLR_WAY_RING).ms[SLR_WAY_RING], 0);
    row.count[SLR_WAY_NCCL][0] = 0;
    cr_expect_not(slr_samples_tried(&row, 3), "in the same rounds");
    slr_samples_forget(&row);
    cr_expect_not(slr_samples_tried(&row, 1));
}

/* And more samples than there is room for. */
Test(ways, what_all_ways_have_taken_counts_until_they_are_measured_anew)
{
    struct slr_samples row = measured(0), other = {.gemm = 8};
    const struct slr_trial_row whole = slr_samples_post(&row, 2, SLR_WAY_RING, SLR_STAGE_WAYS);
    cr_expect_eq(slr_samples_post(&other, 2, SLR_WAY_RING, SLR_STAGE_WAYS).calls, 0);
    slr_samples_forget(&row);
    slr_samples_forget(&other);
    cr_expect(slr_samples_tried(&row, 2) && !slr_samples_tried(&other, 2) && !slr_samples_whole(&row, 2));
    for (int w = SLR_WAY_RING; w <= SLR_WAY_NCCL; w++)
        for (int i = 0; i < 20; i++) {
            const struct slr_clock clock = {.way = w};
            slr_samples_add(&row, &clock, 4);
            slr_samples_add(&other, &clock, 2);
        }
    struct slr_trial_row posted = slr_samples_post(&other, 1, SLR_WAY_RING, SLR_STAGE_DUEL);
    cr_expect(posted.calls == 2 * SLR_SAMPLES && posted.ms[SLR_WAY_NCCL] == 2 && posted.ms[SLR_WAY_WHOLE] == 0);
    posted = slr_samples_post(&row, 1, SLR_WAY_RING, SLR_STAGE_DUEL);
    cr_expect(posted.ms[SLR_WAY_NCCL] == 4, "a duel says what it has measured itself");
    posted = slr_samples_post(&row, 1, SLR_WAY_RING, SLR_STAGE_WAYS);
    cr_expect(memcmp(&posted, &whole, sizeof whole) == 0,
              "a stage that has missed some, what an earlier one has found");
    slr_samples_forget(&row);
    cr_expect_eq(slr_samples_post(&row, 2, SLR_WAY_RING, SLR_STAGE_WAYS).calls, 0, "it has not come at all");
    cr_expect_not(slr_samples_tried(&row, 2));
    cr_expect_not(slr_samples_tried(&other, 1), "only in a duel");
}

/* Of small gathers NCCL is what is in use. */
Test(ways, small_gathers_stay_with_nccl_unless_the_ring_is_clearly_better)
{
    struct slr_trial_row rows[] = {ROW(7, 0, 10, 10, 9, 6, 9, 9, 9), ROW(0, 0, 9, 9, 9, 9, 9, 9, 9)};
    const struct slr_trial_row *const all[] = {rows};
    struct slr_trial_choice choice = {.rows = 0};
    rows[0].worst[3] = 1.1f;
    cr_expect(slr_trials_choose(all, (const uint32_t[]){2}, 1, 0, SLR_WAY_NCCL, true, &choice));
    cr_expect(choice.site_way[0] == SLR_WAY_RING && choice.rows == 1 && choice.row[0].way == 3, "6 + 9 against 10 + 9");
    rows[0].ms[3] = 9.8f;
    cr_expect_not(slr_trials_choose(all, (const uint32_t[]){2}, 1, 0, SLR_WAY_NCCL, true, &choice));
    cr_expect_eq(choice.site_way[0], SLR_WAY_RING, "whole: 9 + 9 against 10 + 9");
    rows[0].ms[SLR_WAY_NCCL] = 9.2f;
    cr_expect_not(slr_trials_choose(all, (const uint32_t[]){2}, 1, 0, SLR_WAY_NCCL, true, &choice));
    cr_expect_eq(choice.site_way[0], SLR_WAY_NCCL, "not by 2%%");
    for (int way = SLR_WAY_RING; way <= SLR_WAY_NCCL; way++) {
        choice.site_way[0] = way;
        cr_expect_eq(slr_trials_choose(all, (const uint32_t[]){0}, 1, 0, SLR_WAY_NCCL, true, &choice),
                     SLR_VERDICT_NOTHING);
        cr_expect(choice.site_way[0] == way && choice.rows == 1, "nothing was measured");
    }
}

Test(ways, the_worst_round_is_that_beside_what_is_in_use)
{
    struct slr_samples row = {.gemm = 7};
    for (int w = 0; w < SLR_WAYS; w++)
        for (int r = 0; r < 2; r++) {
            row.count[w][r] = 1;
            row.ms[w][r][0] = w == SLR_WAY_NCCL ? 2 + (float)r : 4;
        }
    cr_expect_eq(slr_samples_row(&row, 2, SLR_WAY_NCCL).worst[SLR_WAY_WHOLE], 2);
    cr_expect_eq(slr_samples_row(&row, 2, SLR_WAY_RING).worst[SLR_WAY_NCCL], 0.75f);
}
