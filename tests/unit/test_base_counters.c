/* SPDX-License-Identifier: Apache-2.0 */
#include "base/counters.h"
#include "base/log.h"
#include "log_helpers.h"
#include <pthread.h>

static char *folder, path[64];

static void begin(const char *level)
{
    folder = make_folder();
    snprintf(path, sizeof path, "%s/log", folder);
    use_file(path, level, "text");
}

Test(counters, nothing_without_a_gather)
{
    begin("info");
    slr_count(SLR_R_NOT_TRACKED);
    slr_counters_log();
    cr_expect_neq(access(path, F_OK), 0);
    remove_folder(folder);
}

Test(counters, nothing_below_info)
{
    begin("warn");
    slr_counters.of[SLR_ALL_GATHER].calls = 1;
    slr_counters_log();
    cr_expect_neq(access(path, F_OK), 0);
    remove_folder(folder);
}

static void count_some(void)
{
    slr_counters.of[SLR_ALL_GATHER].calls = 10;
    slr_counters.of[SLR_ALL_GATHER].bytes = 1ull << 40;
    slr_counters.of[SLR_ALL_GATHER].moved = 7;
    slr_counters.of[SLR_ALL_GATHER].moved_bytes = 1ull << 39;
    slr_counters.gemms_chunks = 16;
    slr_counters.verified = 2;
    slr_counters.of[SLR_REDUCE_SCATTER].calls = 6;
    slr_counters.of[SLR_REDUCE_SCATTER].moved = 5;
    slr_counters.of[SLR_ALL_REDUCE].calls = 3;
    slr_counters.of[SLR_ALL_REDUCE].moved = 2;
    slr_counters.of[SLR_ALL_REDUCE].by_reason[SLR_R_GRAPH] = 2;
    slr_counters.scatters_fused = 4;
    slr_counters.scatters_produced = 8;
    slr_counters.of[SLR_REDUCE_SCATTER].by_reason[SLR_R_RING] = 1;
    slr_counters.of[SLR_REDUCE_SCATTER].by_reason[SLR_R_SCATTER_ROOM] = 2;
    for (int i = 0; i < 7; i++)
        slr_count(SLR_R_RING);
    for (int i = 0; i < 3; i++)
        slr_count(SLR_R_TOO_SMALL);
    for (int i = 0; i < 4; i++)
        slr_count(SLR_R_FUSED);
    for (int i = 0; i < 2; i++)
        slr_count(SLR_R_JOIN_OTHER_OP);
    slr_count(SLR_R_JOIN_GROUP);
}

Test(counters, summary_and_reasons)
{
    begin("info");
    count_some();
    slr_counters_log();
    char *text = slurp(path), *summary = strstr(text, "info summary ");
    static const char want[] =
        "info summary calls=10 bytes=1099511627776 substituted=7 substituted_bytes=549755813888 passed=3 fused=4 "
        "gemm_chunks=16 joined=3 staged=0 zero_copy=0 pushed=0 mapped=0 exports=0 imports=0 import_hits=0 "
        "import_closes=0 verified=2 verify_bad=0 scatters=6 "
        "scatters_substituted=5 scatters_fused=4 scatters_produced=8 reduces=3 reduces_substituted=2\n";
    cr_assert_not_null(summary, "%s", text);
    cr_expect_eq(strncmp(summary, want, strlen(want)), 0, "%s", summary);
    cr_expect_not_null(strstr(text, "info count reason=ring n=7\n"));
    cr_expect_not_null(strstr(text, "info count reason=below_min_bytes n=3\n"));
    cr_expect_not_null(strstr(text, "info count reason=fused n=4\n"));
    cr_expect_not_null(strstr(text, "info count reason=other_operation n=2\n"));
    cr_expect_not_null(strstr(text, "info count reason=group n=1\n"));
    int lines = 0;
    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    cr_expect_not_null(strstr(text, "info scatter_count reason=ring n=1\n"));
    cr_expect_not_null(strstr(text, "info scatter_count reason=reduce_scatter_room n=2\n"));
    cr_expect_not_null(strstr(text, "info reduce_count reason=graph n=2\n"));
    cr_expect_eq(lines, 9, "no line for a reason that did not occur");
    free(text);
    remove_folder(folder);
}

static void *count_many(void *arg)
{
    for (int i = 0; i < 10000; i++)
        slr_count(SLR_R_RING);
    return arg;
}

Test(counters, threads_lose_nothing)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(slr_counters.of[SLR_ALL_GATHER].by_reason[SLR_R_RING], 40000);
}

static int totals(void)
{
    char *text = access(path, F_OK) == 0 ? slurp(path) : NULL;
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, "info totals ")); at++)
        n++;
    free(text);
    return n;
}

Test(counters, totals_now_and_then)
{
    static const struct {
        uint64_t at;
        int lines;
    } steps[] = {{1000, 0},  {10999, 0},  {11000, 1},  {30999, 1},  {31000, 2},  {70999, 2},
                 {71000, 3}, {130999, 3}, {131000, 4}, {190999, 4}, {191000, 5}, {251000, 6}};
    begin("info");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        slr_counters.of[SLR_ALL_GATHER].calls++;
        slr_counters_tick(steps[i].at);
        cr_expect_eq(totals(), steps[i].lines, "at %d ms", (int)steps[i].at);
    }
    slr_counters_tick(311000);
    cr_expect_eq(totals(), 6, "without calls");
    slr_counters.of[SLR_ALL_REDUCE].calls++;
    slr_counters_tick(371000);
    cr_expect_eq(totals(), 7);
    remove_folder(folder);
}
