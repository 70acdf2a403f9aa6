/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/gemm_parts.h"

static struct slr_parts walk(size_t cols, size_t col_bytes, int rank, int nranks, uint32_t chunks, double pace)
{
    struct slr_plan plan = slr_plan_make(cols * col_bytes, nranks, (size_t)1 << 30, chunks);
    struct slr_gemm_split split = {.shard_cols = (int64_t)cols, .col_bytes = col_bytes};
    return slr_parts_of(&plan, &split, rank, nranks, pace);
}

/* The order of arrival of the last byte of the columns before `end` of a shard that arrives at `step`. */
static int64_t arrival(const struct slr_parts *p, int64_t end, int step)
{
    uint32_t q = 0;
    while (slr_plan_chunk_end(&p->plan, q) < (size_t)end * p->split.col_bytes)
        q++;
    return (int64_t)q * (p->nranks - 1) + step - 1;
}

/* Where parts begin, by column: their columns, or 0. */
static int64_t *cut_of(struct slr_parts p)
{
    int64_t *cols = calloc((size_t)(p.split.shard_cols * p.nranks), sizeof *cols);
    struct slr_part part;
    while (slr_parts_next(&p, &part)) {
        cr_assert_eq(cols[part.col], 0, "two parts begin at %ld", (long)part.col);
        cols[part.col] = part.cols;
    }
    return cols;
}

/* Every column once, in parts that lie in one shard, if that is wanted. */
static void covers(const int64_t *cols, int64_t shard, int64_t all)
{
    for (int64_t at = 0; at < all; at += cols[at]) {
        cr_assert(cols[at] > 0, "no part begins at %ld", (long)at);
        cr_assert(at / shard == (at + cols[at] - 1) / shard, "a part at %ld lies in two shards", (long)at);
        for (int64_t i = 1; i < cols[at]; i++)
            cr_assert_eq(cols[at + i], 0, "a part begins within another, at %ld", (long)(at + i));
    }
}

/* When the last of what a part reads has arrived, by the shards that it touches; -1: the own shard alone. */
static int64_t last_arrival(const struct slr_parts *p, const struct slr_part *part)
{
    int64_t last = -1, shard = p->split.shard_cols;
    for (int owner = 0; owner < p->nranks; owner++) {
        int64_t begin = owner * shard, end = part->col + part->cols;
        int step = (owner - p->rank + p->nranks) % p->nranks;
        uint32_t chunk = UINT32_MAX;
        bool reads = slr_part_reads(p, part, step, &chunk);
        cr_assert_eq(reads, part->col < begin + shard && end > begin);
        if (!reads || step == 0)
            continue;
        int64_t here = arrival(p, end < begin + shard ? end - begin : shard, step);
        cr_assert_eq((int64_t)chunk * (p->nranks - 1) + step - 1, here,
                     "it waits for another chunk than that of its end");
        last = here > last ? here : last;
    }
    return last;
}

/* Parts of the own shard come first; each other one waits for the chunks that bring the last bytes that it reads of
 * each shard, and none for what comes earlier than what a part before has waited for. */
static void waits_for_what_it_reads(struct slr_parts p)
{
    int64_t waited = -1;
    struct slr_part part;
    while (slr_parts_next(&p, &part)) {
        int64_t waits = last_arrival(&p, &part);
        cr_assert(waits >= 0 || waited < 0, "the own shard's parts come first");
        cr_assert(waits > waited || waits < 0 || p.split.parts, "a part waits for less than the one before");
        cr_assert(waits >= waited, "a part waits for less than the one before");
        waited = waits;
    }
}

static struct slr_parts equal_parts(size_t cols, size_t col_bytes, int rank, int nranks, uint32_t chunks,
                                    uint32_t parts)
{
    struct slr_plan plan = slr_plan_make(cols * col_bytes, nranks, (size_t)1 << 30, chunks);
    struct slr_gemm_split split = {.shard_cols = (int64_t)cols, .col_bytes = col_bytes, .parts = parts};
    return slr_parts_of(&plan, &split, rank, nranks, 1);
}

static void check(size_t cols, size_t col_bytes, int nranks, uint32_t chunks, double pace, uint32_t parts)
{
    const int64_t all = (int64_t)cols * nranks;
    struct slr_parts of[2];
    int64_t *first = NULL;
    for (int rank = 0; rank < nranks; rank++) {
        of[0] = walk(cols, col_bytes, rank, nranks, chunks, pace);
        of[1] = parts ? equal_parts(cols, col_bytes, rank, nranks, chunks, parts) : of[0];
        int64_t *own = cut_of(of[parts > 0]);
        covers(own, parts ? all : (int64_t)cols, all);
        cr_assert(!first || memcmp(own, first, (size_t)all * sizeof *own) == 0, "rank %d cuts differently", rank);
        waits_for_what_it_reads(of[parts > 0]);
        free(first);
        first = own;
    }
    free(first);
}

/* The property that replicas rest on, over shapes, ranks, chunks and paces. */
Test(gemm_parts, all_ranks_make_the_same_parts)
{
    srand(7);
    for (int i = 0; i < 3000; i++) {
        int nranks = 2 + rand() % 9;
        size_t cols = (size_t)(1 + rand() % (i % 10 ? 60 : 3000)), col_bytes = (size_t)(1 + rand() % 3000);
        double pace = rand() % 4 ? (double)(rand() % 600) / 100 : 0;
        check(cols, col_bytes, nranks, (uint32_t)(rand() % (i % 5 ? 9 : 65)), pace, i % 3 ? 0 : (uint32_t)rand() % 65);
    }
}

/* The cut of one shard as text: the columns of its ranges. */
static const char *cut(size_t cols, size_t inner, int64_t other, int nranks, uint32_t chunks, double pace)
{
    static char text[256];
    struct slr_plan plan = slr_plan_make(cols * inner * 2, nranks, (size_t)64 << 20, chunks);
    struct slr_gemm_split split = {
        .shard_cols = (int64_t)cols, .col_bytes = inner * 2, .other = other, .rows = (int64_t)inner};
    struct slr_parts p = slr_parts_of(&plan, &split, nranks - 1, nranks, pace);
    struct slr_part part;
    size_t at = 0;
    text[0] = '\0';
    while (slr_parts_next(&p, &part) && last_arrival(&p, &part) < 0 && at < sizeof text - 24)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%ld", at ? " " : "", (long)part.cols);
    return text;
}
#define CUT(want, ...) cr_expect_str_eq(cut(__VA_ARGS__), want)

Test(gemm_parts, without_a_pace_each_chunk_is_a_range)
{
    CUT("1024 1024 1024 1024", 4096, 2048, 0, 2, 4, 0);
    CUT("4096", 4096, 2048, 0, 8, 1, 0);
    CUT("1024 1024", 2048, 2048, 0, 4, 2, 0);
}

Test(gemm_parts, a_quick_gather_leaves_the_shards_whole)
{
    CUT("4096", 4096, 8192, 8192, 2, 4, 0.73);
    CUT("2048", 2048, 8192, 28672, 4, 2, 0.21);
    CUT("16384", 16384, 16384, 8192, 2, 8, 0.73);
}

/* What arrives last is computed behind the gather, so it is little; what comes early, and the own shard, have time. */
Test(gemm_parts, a_slow_gather_is_consumed_as_it_comes)
{
    CUT("2048 4096 2048", 8192, 8192, 1280, 2, 4, 4.69);
    CUT("4096 4096", 8192, 4096, 4096, 2, 4, 1.46);
}

/* With several peers the chunks of all arrive in turn: a whole shard is there late. */
Test(gemm_parts, several_peers_arrive_in_turn)
{
    CUT("1024 1024", 2048, 8192, 8192, 4, 2, 0.73);
    CUT("1024 1024 2048", 4096, 8192, 8192, 8, 4, 0.73);
}

/* A GEMM that is too small to be worth it is cut along the shards only. */
Test(gemm_parts, small_parts_cost_more_than_they_bring)
{
    CUT("96", 96, 1024, 64, 3, 7, 0.2);
    CUT("1024", 1024, 8192, 1024, 2, 2, 0.9);
}

Test(gemm_parts, borders_fall_on_whole_tiles)
{
    CUT("768 832 832 832 832", 4096, 2050, 0, 2, 5, 0); /* chunks end at 819.7, 1639.4, .. */
    CUT("240 256 240 264", 1000, 2048, 0, 2, 4, 0);
    CUT("1 1 1", 3, 2048, 0, 2, 9, 0);
}

/* The middle one lies in both shards: the rank whose shard comes second needs all of the first for it. */
Test(gemm_parts, a_wanted_number_gives_equal_parts_across_shards)
{
    const struct {
        int64_t col, cols;
    } want[2][3] = {{{0, 2560}, {2560, 2816}, {5376, 2816}}, {{5376, 2816}, {0, 2560}, {2560, 2816}}};
    for (int rank = 0; rank < 2; rank++) {
        struct slr_parts p = equal_parts(4096, 16384, rank, 2, 4, 3);
        struct slr_part part;
        for (int i = 0; i < 3; i++) {
            cr_assert(slr_parts_next(&p, &part));
            cr_expect(part.col == want[rank][i].col && part.cols == want[rank][i].cols, "%ld %ld", (long)part.col,
                      (long)part.cols);
        }
        cr_assert_not(slr_parts_next(&p, &part));
    }
}

Test(gemm_parts, more_equal_parts_than_columns)
{
    struct slr_parts p = equal_parts(1, 8, 1, 3, 1, 64);
    struct slr_part part;
    for (int i = 0; i < 3; i++)
        cr_assert(slr_parts_next(&p, &part) && part.cols == 1 && part.col == (1 + i) % 3);
    cr_assert_not(slr_parts_next(&p, &part));
}

/* Parts begin at multiples of the quantum on all ranks, whatever the shards; none is lost. */
static unsigned check_quantum(size_t cols, int nranks, uint32_t chunks, int64_t quantum, uint32_t wanted, bool sums)
{
    const int64_t all = (int64_t)cols * nranks;
    struct slr_plan plan = slr_plan_make(cols * 8, nranks, (size_t)1 << 30, chunks);
    struct slr_gemm_split split = {
        .shard_cols = (int64_t)cols, .col_bytes = 8, .quantum = quantum, .parts = wanted, .sums = sums, .rows = 8};
    unsigned parts = 0;
    int64_t *first = NULL;
    for (int rank = 0; rank < nranks; rank++) {
        struct slr_parts p = slr_parts_of(&plan, &split, rank, nranks, 0);
        int64_t *here = cut_of(p), at = 0;
        for (parts = 0; at < all; at += here[at], parts++)
            cr_assert(here[at] > 0 && at % quantum == 0, "a part at %ld", (long)at);
        cr_assert(!first || memcmp(first, here, (size_t)all * sizeof *here) == 0, "ranks cut alike");
        free(first);
        first = here;
    }
    free(first);
    return parts;
}

Test(gemm_parts, parts_begin_at_multiples_of_the_quantum)
{
    for (int nranks = 2; nranks <= 4; nranks++)
        for (uint32_t chunks = 1; chunks <= 5; chunks += 2)
            for (int sums = 0; sums < 2; sums++) {
                cr_expect_geq(check_quantum(48, nranks, chunks, 16, 0, sums), 2);
                cr_expect_geq(check_quantum(40, nranks, chunks, 16, 0, sums), 2);
                cr_expect_geq(check_quantum(384, nranks, chunks, 128, 0, sums), 2);
                cr_expect_geq(check_quantum(200, nranks, chunks, 128, 5, sums), 2);
                check_quantum(1, nranks, chunks, 16, 3, sums);
            }
    cr_expect_eq(check_quantum(24, 2, 1, 16, 0, false), 2, "equal parts where the shards are uneven");
    cr_expect_eq(check_quantum(24, 2, 1, 128, 0, false), 1);
}

Test(gemm_parts, many_chunks_are_grouped)
{
    struct slr_parts p = walk(65536, 64, 1, 2, 64, 3);
    cr_expect(p.groups == 8 && p.chunks == 8);
    p = walk(65536, 64, 1, 2, 64, 0);
    cr_expect(p.groups == 64 && p.chunks == 1);
}

Test(gemm_parts, overhead)
{
    cr_assert(slr_parts_overhead(8192, 8192) == 48 && slr_parts_overhead(1024, 8192) == 384);
    cr_assert(slr_parts_overhead(8192, 512) > 280, "short parts: the launch counts");
    cr_assert_eq(slr_parts_overhead(0, 8192), 0);
}

Test(gemm_parts, pace)
{
    cr_assert(slr_parts_pace(2, 8192, 2000) > 0.2440 && slr_parts_pace(2, 8192, 2000) < 0.2442);
    cr_assert_eq(slr_parts_pace(4, 8192, 2000), slr_parts_pace(2, 8192, 2000), "half as fast, twice as large");
    cr_assert_eq(slr_parts_pace(2, 0, 2000), 0);
    cr_assert_eq(slr_parts_pace(2, 8192, 0), 0);
}

static struct slr_parts sum_walk(size_t cols, size_t col_bytes, int rank, int nranks, uint32_t chunks, double pace,
                                 uint32_t parts)
{
    struct slr_plan plan = slr_plan_make(cols * col_bytes, nranks, (size_t)1 << 30, chunks);
    struct slr_gemm_split split = {.sums = true,
                                   .shard_cols = (int64_t)cols,
                                   .col_bytes = col_bytes,
                                   .rows = (int64_t)col_bytes / 2,
                                   .other = 1 << 20,
                                   .parts = parts};
    return slr_parts_of(&plan, &split, rank, nranks, pace);
}

/* One behind the other from the first column to the last; each waits for what it reads of every shard. */
static unsigned check_sum(struct slr_parts p, struct slr_part *list)
{
    struct slr_part part;
    int64_t at = 0;
    unsigned count = 0;
    for (; slr_parts_next(&p, &part); at += part.cols, list[count++] = part) {
        cr_assert(part.col == at && part.cols > 0);
        last_arrival(&p, &part);
    }
    cr_assert_eq(at, p.split.shard_cols * p.nranks);
    return count;
}

/* Not only the parts, but their order as well, because the order of a sum decides its bits. */
Test(gemm_parts, all_ranks_sum_in_the_same_order)
{
    static struct slr_part first[4096], own[4096];
    unsigned several = 0;
    srand(11);
    for (int i = 0; i < 3000; i++) {
        int nranks = 2 + rand() % 9;
        size_t cols = (size_t)(1 + rand() % (i % 10 ? 60 : 3000)), col_bytes = (size_t)(2 + rand() % 3000);
        double pace = rand() % 4 ? (double)(rand() % 3000) : 0;
        uint32_t chunks = (uint32_t)(rand() % (i % 5 ? 9 : 65)), parts = i % 3 ? 0 : (uint32_t)rand() % 65;
        struct slr_parts p = sum_walk(cols, col_bytes, 0, nranks, chunks, pace, parts);
        const unsigned count = check_sum(p, first);
        cr_assert(slr_parts_several(p) == (count > 1) && (count > 1 || pace > 0 || parts));
        several += pace > 0 && count > 1 && !parts;
        for (int rank = 1; rank < nranks; rank++) {
            cr_assert_eq(check_sum(sum_walk(cols, col_bytes, rank, nranks, chunks, pace, parts), own), count);
            for (unsigned j = 0; j < count; j++)
                cr_assert(own[j].col == first[j].col && own[j].cols == first[j].cols);
        }
    }
    cr_assert(several > 100, "only %u were cut by their pace", several);
}

/* The cut as text: the columns of each part. */
static const char *sum_cut(size_t cols, size_t rows, int64_t other, int nranks, double head)
{
    static char text[256];
    struct slr_plan plan = slr_plan_make(cols * rows * 2, nranks, (size_t)64 << 20, 0);
    struct slr_gemm_split split = {.sums = true,
                                   .shard_cols = (int64_t)cols,
                                   .col_bytes = rows * 2,
                                   .rows = (int64_t)rows,
                                   .other = other,
                                   .head = head};
    struct slr_parts p = slr_parts_of(&plan, &split, 0, nranks, slr_parts_pace(2, other, 6000));
    struct slr_part part;
    size_t at = 0;
    while (slr_parts_next(&p, &part) && at < sizeof text - 24)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%ld", at ? " " : "", (long)part.cols);
    return text;
}
#define SUM_CUT(want, ...) cr_expect_str_eq(sum_cut(__VA_ARGS__), want)

Test(gemm_parts, summands_are_few)
{
    SUM_CUT("1024 7168", 4096, 8192, 7168, 2, 0);
    SUM_CUT("1024 2048 5120", 4096, 8192, 1024, 2, 0);
    SUM_CUT("4096 28672", 8192, 8192, 7168, 4, 0);
    SUM_CUT("8192", 4096, 8192, 65536, 2, 0);
    SUM_CUT("1024", 512, 1024, 4096, 2, 0);
}

/* The gather of the first of these takes 3429 columns' time. */
Test(gemm_parts, a_gather_that_was_hidden_is_not_waited_for_in_parts)
{
    SUM_CUT("2048 6144", 4096, 8192, 7168, 2, 1000);
    SUM_CUT("8192", 4096, 8192, 7168, 2, 3000);
    SUM_CUT("8192", 4096, 8192, 7168, 2, 1e6);
}

Test(gemm_parts, flop)
{
    struct slr_gemm gemm = {.m = 10, .n = 20, .k = 30, .batch = 2, .atype = CUDA_R_16BF};
    cr_assert_eq(slr_parts_flop(&gemm), 24000);
    gemm.atype = CUDA_R_32F;
    cr_assert_eq(slr_parts_flop(&gemm), 48000, "half as fast");
    gemm.atype = CUDA_C_32F;
    cr_assert_eq(slr_parts_flop(&gemm), 0);
}

Test(gemm_parts, sum_overhead)
{
    cr_assert_eq(slr_parts_sum_overhead(2, 0x1p26), 640 + 16);
    cr_assert_eq(slr_parts_sum_overhead(4, 0x1p26), 320 + 16);
    cr_assert_eq(slr_parts_sum_overhead(2, 0), 0);
}
