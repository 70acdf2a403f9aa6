/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that share groups with others: with a GEMM behind each their ways are tried, else the program's times tell, if
 * anything does. */
#include <math.h>
#include <string.h>
#include "trials_play.h"

static void init(void)
{
    trials_open();
    steady = true;
}

static void fini(void)
{
    trials_close();
}

TestSuite(trials_groups, .init = init, .fini = fini);

static const struct slr_trials *rank0(void)
{
    return ranks[0].comm.trials;
}

Test(trials_groups, a_duel_decides)
{
    grouped = 4, gemm_m = 0;
    model.nccl = 1, model.pace = 0.9;
    go(2 * DECIDED);
    cr_expect(in_stage(0, -1) == 0 && in_stage(1, 0) > 0);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(rank0()->in_force.chosen[0], 2);
    cr_expect(kept == 1 && !latest_kept.nccl && latest_kept.consumer.m < 0 && !latest_kept.cut[0]);
}

Test(trials_groups, it_may_be_nccls)
{
    grouped = 4;
    model.nccl = 0.9, model.pace = 1;
    go(2 * DECIDED);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* The ring is ahead, but not certainly. */
Test(trials_groups, when_nothing_tells_they_go_on)
{
    grouped = 4, gemm_m = 0;
    model.nccl = model.pace = 1;
    uneven = (const double[]){0, 2, 2, 0, 2, 0}; /* of two rounds NCCL's turn, of the third the ring's */
    go(2 * DECIDED);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(rank0()->in_force.chosen[0], 0);
    cr_expect_eq(in_stage(1, -1), 6 * (SLR_DUEL_FIRST + 48));
    go(10 * DECIDED);
    cr_expect_eq(in_stage(3, -1), 6 * (SLR_DUEL_FIRST + 96), "a longer one");
    cr_expect_eq(in_stage(5, -1), 0, "more and more rarely");
    cr_expect_eq(rank0()->site[0].pairs.n, 6, "each round counts once");
}

/* It is not ahead, as far as several show: NCCL has them. */
Test(trials_groups, later_duels_decide_for_nccl)
{
    grouped = 4, gemm_m = 0;
    model.nccl = 0.95, model.pace = 1;
    steady = false;
    go(2 * DECIDED);
    cr_expect(latest()->why == SLR_R_RING && in_stage(1, -1) > 0);
    go(6 * DECIDED);
    cr_expect(latest()->why == SLR_R_MEASURED && latest()->stage == 3);
    cr_expect_eq(rank0()->site[0].pairs.n, 6);
}

/* ---- with a GEMM behind each ---- */

/* Of the stages in which all ways are tried. */
static int in_ways(int parts)
{
    return in_stage(0, parts) + in_stage(2, parts);
}

/* A layer's two gathers are a group: as many parts as are fastest, and NCCL where that is. */
Test(trials_groups, ways_are_tried)
{
    static const struct model of[] = {{.nccl = 1.2, .pace = 1, .parts = {[3] = 0.7}}, {.nccl = 1.2, .pace = 1}};
    by_size = of;
    grouped = 2, sizes = "12";
    go(2 * DECIDED);
    cr_expect(in_ways(1) > 0 && in_ways(3) > 0 && in_ways(6) > 0);
    cr_expect(rank0()->in_force.chosen[0] && rank0()->in_force.site_way[0] == SLR_WAY_RING);
    cr_expect_eq(ranks[0].went[2 * DECIDED - 2].parts, 3, "%u", ranks[0].went[2 * DECIDED - 2].parts);
    cr_expect_eq(latest()->why, SLR_R_RING);
}

Test(trials_groups, ways_are_tried_and_nccl_is_faster)
{
    grouped = 4;
    model.nccl = 0.7, model.pace = 1, model.parts[3] = 0.9;
    go(2 * DECIDED);
    cr_expect(in_ways(3) > 0);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* Turns end within groups, whose times tell of no way: the program's do. */
Test(trials_groups, turns_that_divide_groups)
{
    grouped = 6;
    model.nccl = 1, model.pace = 1.4, model.parts[3] = 0.1;
    go(4 * DECIDED);
    cr_expect(in_ways(3) > 0 && in_stage(1, -1) + in_stage(3, -1) > 0);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* What is alone now and then has times of its own, beside which those of groups would be long. */
Test(trials_groups, not_beside_those_alone)
{
    groups = ".(--)";
    model.nccl = 1, model.pace = 0.7;
    go(2 * DECIDED);
    for (unsigned i = 0; i < rank0()->sites; i++)
        cr_expect(rank0()->site[i].told <= rank0()->site[i].alone || rank0()->site[i].alone == 0, "site %u", i);
    cr_expect_eq(latest()->why, SLR_R_RING);
}

/* ---- what an iteration is ---- */

/* "(--)(--)..." */
static const char *groups_of_four(int n)
{
    static char text[CALLS];
    *text = 0;
    for (int i = 0; i < n; i++)
        strcat(text, "(--)");
    return text;
}

static const char *halves(int n)
{
    static char text[CALLS];
    memset(text, '1', (size_t)n);
    memset(text + n, '2', (size_t)n);
    text[2 * n] = 0;
    return text;
}

/* One half of an iteration takes much longer than the other: only whole ones tell. */
static void long_iterations(int calls)
{
    static const struct model of[2] = {{.nccl = 1, .pace = 1.2}, {.nccl = 9, .pace = 10.8}};
    by_size = of;
    gemm_m = 0;
    groups = groups_of_four(calls / 4);
    sizes = halves(calls / 2);
    go(6000);
    cr_expect_eq(latest()->why, SLR_R_MEASURED, "iterations of %d calls", calls);
    cr_expect_eq((rank0()->site[0].run - SLR_DUEL_FIRST) % (uint32_t)calls, 0, "iterations of %d calls: %u", calls,
                 rank0()->site[0].run);
    cr_expect_eq(tried(4000, 6000), 0);
}

Test(trials_groups, iterations_of_56_calls)
{
    long_iterations(56);
}

Test(trials_groups, iterations_of_200_calls)
{
    long_iterations(200);
}

Test(trials_groups, iterations_of_304_calls)
{
    long_iterations(304);
}

/* Of one size some are alone, and some in groups: where times are missed again and again what was chosen stays. */
Test(trials_groups, some_alone)
{
    static char pattern[200];
    for (int i = 0; i < 6; i++)
        strcat(pattern, "...(---)...(--)");
    for (int i = 0; i < 6; i++)
        strcat(pattern, "(--)..(-)");
    groups = pattern;
    gemm_m = 0;
    model.nccl = 1, model.pace = 1.3;
    go(CALLS);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    cr_expect(tried(CALLS / 2, CALLS) < CALLS / 20, "%d", tried(CALLS / 2, CALLS));
    cr_expect(rank0()->site[0].program == SLR_PROGRAM_DECIDES, "the choice in force is the program's");
}

/* Calls of a warm-up have no part in the program's duels, and make no turn longer. */
Test(trials_groups, a_site_that_is_not_called_any_more)
{
    gemm_m = 0;
    model.nccl = model.pace = 1;
    steady = false;
    groups = "(------)", sizes = "4";
    go(8);
    groups = "(--)(---)(-----)", sizes = "1122112211221122";
    go(4000);
    cr_expect_eq(rank0()->site[0].seen, 8);
    cr_expect_leq(rank0()->site[0].again, 1);
    cr_expect_geq(rank0()->site[1].again, 3);
    cr_expect_eq(rank0()->site[1].run, SLR_DUEL_FIRST + 6 * 16);
}

static void init_without_first(void)
{
    setenv("SLIPRING_TRIALS_AFTER", "0", 1);
    init();
}

Test(trials_groups, no_first_calls, .init = init_without_first)
{
    grouped = 4;
    model.nccl = model.pace = 1;
    steady = false;
    go(4000);
    cr_expect(tried(0, 500) > 0 && tried(3000, 4000) < 100, "%d, %d", tried(0, 500), tried(3000, 4000));
}

/* ---- random programs ---- */

static uint64_t drawn;

static double draw(double from, double to)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return from + (to - from) * (double)(drawn >> 40) / (double)(1 << 24);
}

static void begin_again(void)
{
    trials_close();
    memset(ranks, 0, sizeof ranks);
    trials_open();
}

/* Groups of as many calls, of two sizes perhaps. Returns in how many of 100 programs they go as is best, where that is by
 * more than a fiftieth. */
static int random_groups(void)
{
    static const char *const all[] = {"1", "12", "112", "1222"};
    int good = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        drawn = seed;
        model.nccl = draw(0.5, 2), model.pace = draw(0.5, 2);
        sizes = all[(int)draw(0, 4)];
        grouped = (int)draw(2, 13);
        gemm_m = draw(0, 2) < 1 ? 0 : 8;
        go(4 * DECIDED);
        const bool ring = latest()->why == SLR_R_RING;
        good += ring == (model.pace < model.nccl) || fabs(model.pace - model.nccl) < model.nccl / 50;
        begin_again();
    }
    return good;
}

Test(trials_groups, random_groups)
{
    cr_expect_geq(random_groups(), 99);
}

Test(trials_groups, a_rank_with_hiccups)
{
    hiccup = 0.5;
    cr_expect_geq(random_groups(), 99);
}

/* Layers forward and backward, each of some calls alone and some in groups, of three sizes at most. */
static char pattern[2][CALLS];

static void make_mixed(void)
{
    const int layers = (int)draw(2, 30), kinds = (int)draw(1, 4);
    memset(pattern, 0, sizeof pattern);
    for (int backward = 0; backward < 2; backward++) {
        char of_group[32] = "", of_size[32] = "";
        for (int i = 0, n = (int)draw(1, 9); i < n;) {
            const int calls = draw(0, 1) < 0.4 ? 1 : (int)draw(2, 6);
            for (int j = 0; j < calls; j++, i++) {
                of_group[i] = calls == 1 ? '.' : j == 0 ? '(' : j == calls - 1 ? ')' : '-';
                of_size[i] = (char)('1' + (int)draw(0, kinds));
            }
        }
        for (int i = 0; i < layers; i++)
            strcat(pattern[0], of_group), strcat(pattern[1], of_size);
    }
    groups = pattern[0], sizes = pattern[1];
}

/* What an iteration takes by what is in force; all over the ring, and all by NCCL. */
static double iteration(const struct model *of, double *ring, double *nccl)
{
    double ms = 0;
    *ring = *nccl = 0;
    for (const char *size = sizes; *size; size++) {
        go(1);
        const struct model *m = &of[sizes[(size_t)(ranks[0].calls - 1) % strlen(sizes)] - '1'];
        const struct slr_trial_choice *choice = &rank0()->in_force;
        const int own = rank0()->now.site, like = rank0()->site[own].like;
        const int by = like < 0 || choice->chosen[own] ? own : like;
        ms += choice->chosen[by] && choice->site_way[by] == SLR_WAY_NCCL ? m->nccl : m->pace;
        *ring += m->pace;
        *nccl += m->nccl;
    }
    return ms;
}

/* None is slower than by NCCL alone, or over the ring alone, and trials end. */
Test(trials_groups, mixed_programs)
{
    static struct model of[3];
    int slower = 0, calls = 0;
    by_size = of;
    gemm_m = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        double ring, nccl;
        drawn = seed * 7919;
        for (int i = 0; i < 3; i++) {
            of[i].nccl = draw(0.5, 1.5);
            of[i].pace = of[i].nccl * draw(0.5, 1.5);
        }
        make_mixed();
        go(8000);
        calls += tried(6000, 8000);
        const double takes = iteration(of, &ring, &nccl);
        slower += takes > 1.05 * (ring < nccl ? ring : nccl);
        begin_again();
    }
    cr_expect_leq(slower, 1);
    cr_expect_lt(calls, 50 * 2000 / 20, "%d of the last %d calls were tried", calls, 50 * 2000);
}
