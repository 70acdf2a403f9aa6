/* SPDX-License-Identifier: Apache-2.0 */
/* The line at the end of a job: what the counters make of it, and who says it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/log.h"
#include "plugin/lifecycle/lifecycle_impl.h"

static enum slr_launched by;

enum slr_launched slr_launched(void)
{
    return by;
}

bool slr_launched_first(void)
{
    return true;
}

bool slr_launched_rank0(void)
{
    return true;
}

static const char *text(void)
{
    static char line[SLR_LOG_LINE];
    return slr_closing_text(line, sizeof line);
}

#define FEW                                                                                                            \
    "rank 0: not known whether it helped: too few calls to compare ring and NCCL, which takes up to 268 at a call "    \
    "site; "

static void count(enum slr_reason r, int n)
{
    for (int i = 0; i < n; i++)
        slr_count(r);
}

Test(closing, nothing_without_a_gather)
{
    cr_expect_str_eq(text(), "");
    by = SLR_LAUNCHED_QUIET;
    cr_expect_str_eq(text(), "");
}

Test(closing, a_launched_job_without_a_gather)
{
    by = SLR_LAUNCHED_RUN;
    cr_expect_str_eq(
        text(),
        "rank 0: communicators were made, but neither ncclAllGather, ncclReduceScatter nor ncclAllReduce was called");
}

Test(closing, all_over_the_ring)
{
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].moved = 8;
    count(SLR_R_RING, 8);
    count(SLR_R_FUSED, 5);
    count(SLR_R_JOIN_OTHER_OP, 3);
    cr_expect_str_eq(text(), FEW "8 of 8 all-gathers went over the ring, 5 GEMMs ran in parts behind them");
}

Test(closing, the_main_reason_and_its_cure)
{
    slr_counters.of[SLR_ALL_GATHER].calls = 10;
    slr_counters.of[SLR_ALL_GATHER].moved = 3;
    count(SLR_R_RING, 2);
    count(SLR_R_GRAPH, 20); /* goes to the ring, too */
    count(SLR_R_TOO_SMALL, 4);
    count(SLR_R_MEASURED, 3);
    count(SLR_R_FUSED, 30);
    cr_expect(strstr(text(), "3 of 10 all-gathers"), "%s", text());
    cr_expect(strstr(text(), "; 7 all-gathers stayed with NCCL, 4 of them for below_min_bytes ("), "%s", text());
    cr_expect(strstr(text(), "): lower SLIPRING_MIN_BYTES"), "%s", text());
    count(SLR_R_MEASURED, 3);
    cr_expect(strstr(text(), "6 of them for measured (NCCL was measured"), "%s", text());
    cr_expect_eq(text()[strlen(text()) - 1], ')', "there is no cure: %s", text());
}

Test(closing, why_no_gemm_ran_in_parts)
{
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].moved = 4;
    count(SLR_R_RING, 4);
    count(SLR_R_JOIN_NO_FUSE, 3);
    count(SLR_R_JOIN_OTHER_OP, 1);
    cr_expect(strstr(text(), "; no GEMM ran in parts, mostly for fuse_off ("), "%s", text());
    cr_expect(strstr(text(), "SLIPRING_FUSE=on"), "%s", text());
}

Test(closing, what_was_measured)
{
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].moved = 1;
    slr_counters.chosen = 2;
    slr_counters.chosen_ns = 1500000;
    slr_counters.chosen_nccl_ns = 2750000;
    slr_counters.felt = 3;
    slr_counters.felt_calls = 24;
    slr_counters.felt_ns = 9000000;
    slr_counters.felt_nccl_ns = 9500000;
    slr_counters.traced_ns = 4000000;
    slr_counters.traced_hidden_ns = 3000000;
    cr_expect_str_eq(text(),
                     "rank 0: won 5.3% of the program's time against NCCL: with 3 call sites as chosen 24 calls of the "
                     "program took 9.000 ms, "
                     "by NCCL 9.500 ms; 1 of 1 all-gathers went over the ring; measured at 2 call sites: 1.500 ms "
                     "as chosen, 2.750 ms by NCCL; of 4.000 ms of traced gathers 3.000 ms were hidden");
    slr_counters.felt_ns = 9550000;
    cr_expect_eq(strncmp(text(), "rank 0: even with NCCL: with 3 call sites", 41), 0, "%s", text());
    slr_counters.felt_ns = 9690000;
    cr_expect_eq(strncmp(text(), "rank 0: lost 2.0% of the program's time against NCCL: with 3 call sites", 71), 0,
                 "%s", text());
    slr_counters.felt = slr_counters.felt_ns = slr_counters.felt_nccl_ns = 0;
    cr_expect_str_eq(text(),
                     "rank 0: won 45.5% of the calls' time against NCCL, measured at 2 call sites: 1.500 ms as chosen, "
                     "2.750 ms by NCCL; "
                     "1 of 1 all-gathers went over the ring; of 4.000 ms of traced gathers 3.000 ms were hidden");
}

Test(closing, what_nccl_has_after_all)
{
    slr_counters.of[SLR_ALL_GATHER].calls = 10;
    slr_counters.of[SLR_ALL_GATHER].moved = 4;
    slr_counters.chosen = 1;
    slr_counters.chosen_ns = slr_counters.chosen_nccl_ns = 1500000;
    cr_expect(strstr(text(), "rank 0: not worth it here: NCCL is faster, or as fast, and has the calls; leave slipring "
                             "out, measured at 1 call site: "),
              "%s", text());
    slr_counters.of[SLR_ALL_GATHER].moved = 5;
    cr_expect(strstr(text(), "rank 0: nothing won: NCCL is faster, or as fast, and has the calls, measured at"), "%s",
              text());
}

Test(closing, why_nothing_is_known)
{
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].moved = 10;
    count(SLR_R_GRAPH, 6);
    cr_expect(strstr(text(), "helped: most calls are in CUDA graphs"), "%s", text());
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
    cr_expect(strstr(text(), "helped: ring and NCCL were not compared, as CUBLAS_WORKSPACE_CONFIG is set; 10 of 10 "),
              "%s", text());
    slr_counters.of[SLR_ALL_GATHER].moved = 0;
    slr_counters.of[SLR_ALL_REDUCE].calls = slr_counters.of[SLR_ALL_REDUCE].by_reason[SLR_R_SCATTER_UNTRIED] = 3;
    cr_expect(strstr(text(), "rank 0: nothing was moved: 0 of 10 all-gathers"), "%s", text());
    cr_expect(strstr(text(), "; 3 all-reduces stayed with NCCL, as no ways are tried: CUBLAS_WORKSPACE_CONFIG is set"),
              "%s", text());
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    cr_expect(strstr(text(), "; 3 all-reduces stayed with NCCL, before their ways were tried (reduce_scatter_untried)"),
              "%s", text());
}

Test(closing, reduce_scatters)
{
    slr_counters.of[SLR_REDUCE_SCATTER].calls = 6;
    slr_counters.of[SLR_REDUCE_SCATTER].moved = 5;
    slr_counters.scatters_fused = 4;
    cr_expect_str_eq(text(), FEW "5 of 6 reduce-scatters went over the ring, 4 as their GEMMs completed the parts");
    slr_counters.of[SLR_ALL_GATHER].calls = 1;
    cr_expect_str_eq(text(),
                     FEW "0 of 1 all-gathers went over the ring; 5 of 6 reduce-scatters went over the ring, 4 as "
                         "their GEMMs completed the parts");
}

Test(closing, all_reduces)
{
    slr_counters.of[SLR_ALL_REDUCE].calls = 9;
    slr_counters.of[SLR_ALL_REDUCE].moved = 7;
    cr_expect_str_eq(text(), FEW "7 of 9 all-reduces went over the ring");
    slr_counters.scatters_fused = 4;
    cr_expect_str_eq(text(), FEW "7 of 9 all-reduces went over the ring, 4 as their GEMMs completed the parts");
    slr_counters.of[SLR_REDUCE_SCATTER].calls = slr_counters.of[SLR_REDUCE_SCATTER].moved = 3;
    cr_expect_str_eq(text(),
                     FEW "3 of 3 reduce-scatters went over the ring; 7 of 9 all-reduces went over the ring, 4 of "
                         "both as their GEMMs completed the parts");
}

/* Of each collective that has a hundredth of the bytes, or more. */
Test(closing, why_calls_stayed_with_nccl)
{
    slr_counters.of[SLR_ALL_REDUCE].calls = 9;
    slr_counters.of[SLR_ALL_REDUCE].moved = 4;
    slr_counters.of[SLR_ALL_REDUCE].by_reason[SLR_R_RING] = 4;
    slr_counters.of[SLR_ALL_REDUCE].by_reason[SLR_R_TOO_SMALL] = 3;
    slr_counters.of[SLR_ALL_REDUCE].by_reason[SLR_R_REDUCE_OFF] = 2;
    slr_counters.of[SLR_ALL_REDUCE].bytes = 1000;
    slr_counters.of[SLR_ALL_REDUCE].moved_bytes = 400;
    cr_expect(strstr(text(), "; 5 all-reduces stayed with NCCL, 3 of them for below_min_bytes ("), "%s", text());
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].by_reason[SLR_R_MEASURED] = 1;
    slr_counters.of[SLR_ALL_GATHER].bytes = 10;
    cr_expect(strstr(text(), "; 5 all-reduces stayed with NCCL"), "%s", text());
    cr_expect_not(strstr(text(), "measured"), "%s", text());
    slr_counters.of[SLR_ALL_GATHER].bytes = 11;
    cr_expect(strstr(text(), "; 1 all-gather stayed with NCCL, for measured ("), "%s", text());
    cr_expect(strstr(text(), "; 5 all-reduces stayed with NCCL"), "%s", text());
    slr_counters.of[SLR_ALL_REDUCE].moved = 9;
    slr_counters.of[SLR_ALL_REDUCE].moved_bytes = 1000;
    cr_expect_not(strstr(text(), "all-reduces stayed with NCCL"), "%s", text());
}

Test(closing, a_small_buffer_is_not_overrun)
{
    char line[24];
    memset(line, 'x', sizeof line);
    slr_counters.of[SLR_ALL_GATHER].calls = slr_counters.of[SLR_ALL_GATHER].moved = 123456789;
    slr_closing_text(line, 20);
    cr_expect_eq(strlen(line), 19);
    cr_expect_eq(line[20], 'x');
}

Test(closing, every_cure_is_of_a_reason_and_short)
{
    int n = 0;
    for (int r = 0; r < SLR_R_COUNT; r++) {
        const char *cure = slr_reason_cure((enum slr_reason)r);
        n += cure != NULL;
        cr_expect(!cure || (strlen(cure) < 300 && cure[strlen(cure) - 1] != '.'), "%s", slr_reason_name(r));
    }
    cr_expect_gt(n, 15);
    cr_expect_null(slr_reason_cure(SLR_R_COUNT));
    cr_expect_null(slr_reason_cure(SLR_R_MEASURED));
}
