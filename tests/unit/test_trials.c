/* SPDX-License-Identifier: Apache-2.0 */
/* Stages, choices and what brings new trials. */
#include <string.h>
#include "plugin/trials/trials_impl.h"
#include "trials_play.h"

TestSuite(trials, .init = trials_open, .fini = trials_close);

/* As measured on two H200: in short runs both take as long, in longer ones NCCL is faster. */
Test(trials, a_tie_is_decided_by_a_duel)
{
    model.nccl = 0.158, model.pace = 0.25, model.parts[1] = 0.1586, model.later = 1.4;
    go(DECIDED);
    cr_expect_eq(in_stage(0, -1), OF_WAYS);
    cr_expect_eq(in_stage(1, -1), OF_DUEL);
    cr_expect_eq(in_stage(1, 1), OF_DUEL / 2, "the ring with the way that was chosen, not by the pace");
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    cr_expect(kept == 1 && latest_kept.nccl);
}

Test(trials, a_duel_may_be_the_rings)
{
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.94;
    go(DECIDED);
    cr_expect_eq(in_stage(1, 3), OF_DUEL / 2);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
    cr_expect(kept == 1 && !latest_kept.nccl && strcmp(latest_kept.cut, "p3") == 0);
}

Test(trials, a_duel_needs_two_percent)
{
    model.nccl = 1, model.pace = 0.99;
    go(DECIDED);
    cr_expect_eq(in_stage(1, 0), OF_DUEL / 2);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* What the program takes in all is what counts, however little it is, when it is certain. */
Test(trials, a_duel_is_decided_by_what_the_program_takes)
{
    model.nccl = 1, model.pace = 1.05;
    beside[1] = 0.2; /* NCCL's kernels are in the way of what comes behind */
    steady = true;
    go(DECIDED);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(in_stage(1, -1), OF_DUEL);
}

Test(trials, a_duel_may_be_nccls_by_what_the_program_takes)
{
    model.nccl = 1, model.pace = 0.95;
    beside[0] = 0.2;
    steady = true;
    go(DECIDED);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* Turns of twelve calls, and an iteration of two of them: one half takes longer, whichever way its calls go. */
Test(trials, a_duel_in_step_with_the_program)
{
    model.nccl = 1, model.pace = 0.9;
    half[0] = 1;
    half[1] = 2;
    steady = true;
    for (phase = 0; phase < 24; phase++) {
        go(DECIDED);
        cr_expect_eq(latest()->why, SLR_R_RING, "phase %d", phase);
        trials_close();
        memset(ranks, 0, sizeof ranks);
        trials_open();
    }
}

/* Times are known that much later, so as many calls are being measured at once. */
Test(trials, the_host_is_far_ahead)
{
    model.nccl = 1, model.pace = 2;
    sizes = "12345";
    ahead = 128;
    go(900);
    for (int i = 0; i < 5; i++) {
        go(1);
        cr_expect_eq(latest()->why, SLR_R_MEASURED, "size %d", i + 1);
    }
}

Test(trials, what_is_far_apart_needs_no_duel)
{
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.4;
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3 && in_stage(1, -1) == 0 && kept == 1);
}

Test(trials, nccl_that_is_far_better_needs_no_duel)
{
    model.nccl = 0.4, model.pace = 1;
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_MEASURED && in_stage(1, -1) == 0);
}

/* There is nothing else to try. */
Test(trials, a_gather_alone_has_a_duel_at_once)
{
    gemm_m = 0;
    model.nccl = 1, model.pace = 0.9;
    go(DECIDED * 3 / 4);
    cr_expect(in_stage(0, -1) == 0 && in_stage(1, -1) == OF_DUEL);
    cr_expect_eq(latest()->why, SLR_R_RING, "by its own times, as the program's do not tell");
    cr_expect(kept == 1 && !latest_kept.nccl && latest_kept.consumer.m == 0);
}

/* Its own calls' times say NCCL, as a tie is; what the program takes says the ring, once with one turn that was slow. */
Test(trials, a_doubtful_choice_is_looked_at_again)
{
    model.nccl = model.pace = 1;
    beside[SLR_WAY_NCCL] = 0.2;
    uneven = (const double[]){0.25, 0, 0, 0, 0, 0};
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_MEASURED && in_stage(1, -1) == OF_DUEL);
    uneven = NULL;
    steady = true;
    go(4 * DECIDED);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(in_stage(3, -1), 6 * (SLR_DUEL_FIRST + 16), "a longer one");
    cr_expect_eq(in_stage(5, -1), 0);
}

/* And the other way round. */
Test(trials, the_ring_may_be_doubted_too)
{
    model.nccl = 1, model.pace = 0.96;
    beside[SLR_WAY_RING] = 0.25;
    uneven = (const double[]){0, 0.3, 0, 0, 0, 0};
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_RING && in_stage(1, -1) == OF_DUEL);
    const uint64_t first = ranks[0].comm.trials->site[0].duel_end;
    uneven = NULL;
    steady = true;
    go(4 * DECIDED);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    const struct slr_trial_site *s = &ranks[0].comm.trials->site[0];
    const uint64_t waited = s->duel_end - s->duel_calls - first;
    cr_expect(waited >= 192 && waited < 192 + 64, "%d calls", (int)waited);
}

/* Neither way is better: that is no doubt. */
Test(trials, a_tie_leaves_no_doubt)
{
    model.nccl = model.pace = 1;
    steady = true;
    go(10 * DECIDED);
    cr_expect(latest()->why == SLR_R_MEASURED && in_stage(1, -1) == OF_DUEL && in_stage(3, -1) == 0);
}

/* When GEMMs come to consume its gathers, their ways are tried. */
Test(trials, a_gather_that_was_alone)
{
    gemm_m = 0;
    steady = true; /* no doubts are left */
    model.nccl = 1, model.pace = 0.9, model.parts[3] = 0.5;
    go(DECIDED);
    cr_expect_eq(in_stage(2, -1), 0);
    gemm_m = 8;
    go(2 * DECIDED);
    cr_expect(in_stage(2, -1) == OF_WAYS && latest()->why == SLR_R_RING && latest()->parts == 3);
}

/* Calls until a stage begins on rank 0. */
static void until(uint32_t stage)
{
    while (ranks[0].comm.trials->site[0].again < stage)
        go(AHEAD);
}

/* Nothing is measured in the duel: what the first stage found. */
Test(trials, a_duel_in_which_nothing_is_measured)
{
    model.nccl = 1, model.pace = 0.9;
    until(1);
    broken = true;
    go(OF_DUEL + 48);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(kept, 0);
    cr_expect_eq(ranks[0].comm.trials->in_force.chosen[0], 2);
}

Test(trials, a_tie_before_a_duel_in_which_nothing_is_measured)
{
    model.nccl = 1, model.pace = 1;
    until(1);
    broken = true;
    go(OF_DUEL + 48);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
}

/* In graphs, say. */
Test(trials, nothing_is_ever_measured)
{
    model.nccl = 1, model.pace = 1;
    broken = true;
    go(3 * DECIDED);
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(ranks[0].comm.trials->in_force.chosen[0], 0);
    cr_expect_eq(ranks[0].comm.trials->in_force.ended[0], 2, "neither of the calls nor of the duel");
}

/* Strangers come, and the trials that they bring miss all calls: what has been chosen stays, and is tried again later. */
Test(trials, what_was_chosen_stays_when_nothing_is_measured)
{
    model.nccl = 0.4, model.pace = 1;
    go(DECIDED);
    cr_assert_eq(latest()->why, SLR_R_MEASURED);
    gemm_m = 16;
    until(2);
    broken = true;
    go(OF_WAYS + 48);
    cr_expect_eq(latest()->why, SLR_R_MEASURED, "not what is in use without trials");
    broken = false;
    model.nccl = 2;
    go(400);
    cr_expect_eq(in_stage(4, -1), OF_WAYS, "tried again");
    cr_expect_eq(latest()->why, SLR_R_RING);
}

/* What was measured of a GEMM counts beside others that come later, for its number of parts and for the site. */
Test(trials, what_was_measured_counts_on)
{
    model.nccl = 8, model.pace = 2, model.parts[3] = 1;
    go(DECIDED);
    cr_assert(latest()->why == SLR_R_RING && latest()->parts == 3);
    gemm_m = 16;
    until(2);
    model.nccl = 1, model.pace = 1.5, model.parts[3] = 1.5; /* of the new one alone NCCL were better, by less */
    for (int i = 0; i < OF_WAYS + 48; i++) {                /* the first one has some of the ways */
        gemm_m = i % 7 ? 16 : 8;
        go(1);
    }
    cr_expect_eq(latest()->why, SLR_R_RING);
    cr_expect_eq(in_stage(3, -1), 0);
    gemm_m = 8;
    go(100);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3);
    cr_expect_eq(in_stage(4, -1), 0, "it is no stranger");
}

Test(trials, what_a_duel_was_about_is_known)
{
    model.nccl = 1, model.pace = 1;
    go(5 * DECIDED);
    cr_expect_eq(latest()->stage, 1, "its calls are no strangers'");
}

/* Another GEMM: all ways again, and a duel again. */
Test(trials, strangers_behind_a_duel)
{
    steady = true;
    model.nccl = 1, model.pace = 0.9;
    go(DECIDED);
    gemm_m = 16;
    model.parts[4] = 0.87;
    go(540);
    cr_expect_eq(in_stage(2, -1), OF_WAYS);
    cr_expect_eq(in_stage(3, 4), OF_DUEL / 2);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 4);
    gemm_m = 8;
    go(300);
    cr_expect_gt(in_stage(4, -1), 0, "the first one has not been tried this time");
}

/* The duel is NCCL's now; until it is over calls go by what was chosen before. */
Test(trials, between_the_stages_of_later_trials)
{
    model.nccl = 1, model.pace = 0.9;
    go(DECIDED);
    gemm_m = 16;
    model.pace = 1;
    go(480);
    cr_expect_eq(latest()->why, SLR_R_MEASURED);
    int first = 0, last = 0;
    for (int i = 0; i < ranks[0].calls; i++) {
        first = !first && ranks[0].went[i].why == SLR_R_MEASURED ? i : first;
        last = ranks[0].went[i].trying && ranks[0].went[i].stage == 3 ? i : last;
    }
    cr_expect_gt(first, last + AHEAD, "the choice takes some calls");
}

Test(trials, strangers_where_there_was_no_duel)
{
    model.nccl = 1, model.pace = 0.4;
    go(DECIDED);
    gemm_m = 16;
    go(240);
    cr_expect(in_stage(1, -1) == 0 && in_stage(2, -1) == OF_WAYS);
}

/* So too when what was tried is consumed by another GEMM in the duel. That has not been tried in all ways: not kept. */
Test(trials, strangers_in_a_duel)
{
    model.nccl = 1, model.pace = 0.9;
    until(1);
    gemm_m = 16;
    go(OF_DUEL + 40);
    cr_expect(ranks[0].comm.trials->in_force.chosen[0] == 2 && kept == 0);
    go(200);
    cr_expect_gt(in_stage(2, -1), 0);
}

/* The tune file knows one GEMM; another one came, and all ways were tried: the rule does not count in the duel. */
Test(trials, a_known_gemm_in_a_duel)
{
    const struct slr_consumer any = {.m = 8, .n = 8, .k = 8, .batch = 1, .gathered = SLR_CONSUMER_B};
    for (int r = 0; r < RANKS; r++)
        ranks[r].comm.trials->shared->known[0] =
            (struct slr_trial_known){.high = UINT64_MAX, .consumer = any, .way = SLR_WAY_WHOLE};
    ranks[0].comm.trials->shared->knowns = 1;
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.9;
    go(4);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 1);
    gemm_m = 16;
    until(2);
    gemm_m = 8;
    go(260);
    cr_expect_eq(in_stage(3, 3), OF_DUEL / 2);
    cr_expect_eq(latest()->parts, 3);
}

/* The gradient of a weight, which is not split, in front of that of the input, which is: the row is the latter's. */
Test(trials, one_that_needs_all_comes_first)
{
    before_m = 16;
    model.nccl = 1, model.pace = 1.2, model.parts[3] = 0.4;
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_RING && latest()->parts == 3 && kept == 1);
    cr_expect_eq(latest_kept.consumer.m, 8);
    cr_expect_eq(ranks[0].comm.trials->rows, 1);
}

static void no_second_comes(void)
{
    before_m = 16;
    gemm_m = 0;
    model.nccl = 1, model.pace = 0.4;
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_RING && kept == 1);
    cr_expect_eq(latest_kept.consumer.m, 16);
}

Test(trials, one_that_needs_all_comes_alone)
{
    no_second_comes();
}

/* What was gathered is freed behind the GEMM that needs all, and something else lies there. */
Test(trials, a_stranger_in_the_same_memory)
{
    stranger_m = 32;
    no_second_comes();
}

/* A program's first step gathers in another size, for a GEMM; its iterations are of two calls, for none. */
Test(trials, a_duel_does_not_wait_for_an_earlier_phase)
{
    model.nccl = 1, model.pace = 2;
    sizes = "1";
    go(24);
    gemm_m = 0;
    sizes = "23";
    go(64 + 2 * 32 + 2 * OF_DUEL);
    for (int i = 0; i < 2; i++) {
        go(1);
        cr_expect_eq(latest()->why, SLR_R_MEASURED);
    }
}

/* Of a small site NCCL is what is in use; the ring has a large one first. */
Test(trials, small_gathers_have_a_duel)
{
    model.nccl = 1, model.pace = 0.9;
    go(1);
    shard = SMALL;
    go(DECIDED + SLR_SMALL_WARM);
    cr_expect_eq(ranks[0].comm.trials->site[1].again, 1);
    cr_expect_eq(latest()->why, SLR_R_RING);
}

/* One small size too many while a duel is agreed on, and not begun: the site is given up. */
Test(trials, a_small_site_that_is_given_up_before_its_duel)
{
    model.nccl = 1, model.pace = 0.95;
    go(1);
    shard = SMALL;
    while (ranks[0].comm.trials->shared->choice.again[1] == 0)
        go(1);
    cr_assert_eq(ranks[0].comm.trials->site[1].again, 0);
    for (shard = SMALL + 64; shard <= SMALL + 64 * SLR_SMALL_SITES; shard += 64)
        go(1);
    shard = SMALL;
    go(DECIDED);
    cr_expect(latest()->why == SLR_R_TOO_SMALL && in_stage(1, -1) == 0);
    shard = LARGE;
    go(2 * DECIDED); /* its duel has longer turns, as every second call has been another site's */
    while (latest()->trying || ranks[0].comm.trials->trying || ranks[1].comm.trials->trying)
        go(1); /* what it has chosen may be looked at again */
    for (int r = 0; r < RANKS; r++) {
        const struct slr_trials *t = ranks[r].comm.trials;
        cr_expect(t->site[1].again == 1 && t->site[1].state == SLR_SITE_GIVEN_UP && t->trying == 0);
    }
}

Test(trials, small_gathers_that_tie_are_nccls)
{
    model.nccl = 1, model.pace = 0.99;
    go(1);
    shard = SMALL;
    go(DECIDED + SLR_SMALL_WARM);
    cr_expect(latest()->why == SLR_R_TOO_SMALL || latest()->why == SLR_R_MEASURED);
    cr_expect_eq(ranks[0].comm.trials->in_force.site_way[1], SLR_WAY_NCCL);
}
