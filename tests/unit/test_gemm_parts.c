#include <criterion/criterion.h>
#include <stdlib.h>
#include "kernels/gemm_parts.h"

static struct slr_parts walk(size_t cols, size_t col_bytes, int rank, int nranks, uint32_t chunks, double pace)
{
    struct slr_plan plan = slr_plan_make(cols * col_bytes, nranks, (size_t)1 << 30, chunks);
    struct slr_gemm_split split = {.shard_cols = (int64_t)cols, .col_bytes = col_bytes};
    return slr_parts_of(&plan, &split, rank, nranks, pace);
}

static unsigned count(size_t cols, int rank, int nranks, uint32_t chunks, double pace)
{
    struct slr_parts p = walk(cols, 4096, rank, nranks, chunks, pace);
    struct slr_part part;
    unsigned n = 0;
    while (slr_parts_next(&p, &part))
        n++;
    return n;
}

/* Order of arrival of the chunk that completes column `at` of a shard that arrives at `step`. */
static int64_t arrival(const struct slr_parts *p, int64_t at, int step)
{
    uint32_t q = 0;
    while ((int64_t)(slr_plan_chunk_end(&p->plan, q) / p->split.col_bytes) <= at)
        q++;
    return (int64_t)q * (p->nranks - 1) + step - 1;
}

static void check(struct slr_parts p)
{
    int64_t all = p.split.shard_cols * p.nranks, seen = 0, waited = -1;
    bool *done = calloc((size_t)all, sizeof *done);
    struct slr_part part;
    for (bool own = true; slr_parts_next(&p, &part); own = false) {
        cr_assert(part.cols > 0 && part.col >= 0 && part.col + part.cols <= all);
        cr_assert_eq(own, part.step == 0);
        int64_t waits = own ? -1 : (int64_t)part.chunk * (p.nranks - 1) + part.step - 1;
        cr_assert_geq(waits, waited, "a part waits for less than the one before");
        waited = waits;
        for (int64_t c = part.col; c < part.col + part.cols; c++) {
            int owner = (int)(c / p.split.shard_cols), step = (owner - p.rank + p.nranks) % p.nranks;
            cr_assert(!done[c], "column %ld twice", (long)c);
            cr_assert(step == 0 ? own : arrival(&p, c % p.split.shard_cols, step) <= waits,
                      "column %ld is computed before it has arrived", (long)c);
            done[c] = true;
            seen++;
        }
    }
    cr_assert_eq(seen, all);
    free(done);
}

Test(gemm_parts, every_column_once_and_after_its_chunk)
{
    srand(7);
    for (int i = 0; i < 3000; i++) {
        int nranks = 2 + rand() % 9, rank = rand() % nranks;
        size_t cols = (size_t)(1 + rand() % 60), col_bytes = (size_t)(1 + rand() % 3000);
        double pace = rand() % 4 ? (double)(rand() % 400) / 100 : 0;
        check(walk(cols, col_bytes, rank, nranks, (uint32_t)(rand() % 9), pace));
    }
}

Test(gemm_parts, without_a_pace_each_chunk_is_a_part)
{
    cr_assert_eq(count(4096, 0, 2, 4, 0), 5);
    cr_assert_eq(count(4096, 3, 8, 1, 0), 8);
    cr_assert_eq(count(2048, 1, 4, 2, 0), 7);
}

Test(gemm_parts, a_quick_gather_is_one_group)
{
    cr_assert_eq(count(4096, 0, 2, 4, 0.1), 2);
    cr_assert_eq(count(2048, 0, 4, 2, 0.1), 2, "the columns behind the own shard are neighbours");
    cr_assert_eq(count(2048, 1, 4, 2, 0.1), 3, "those before it are a range of their own");
    cr_assert_eq(count(2048, 3, 4, 2, 0.1), 2);
}

Test(gemm_parts, a_slow_gather_is_consumed_chunk_by_chunk)
{
    cr_assert_eq(count(4096, 0, 2, 4, 5), 5);
    cr_assert_eq(count(1024, 2, 8, 1, 5), 8);
}

/* Four chunks of 1024 columns each behind an own part of 4096: at 2, two are there when that is done. */
Test(gemm_parts, groups_grow_with_what_has_arrived)
{
    struct slr_parts p = walk(4096, 4096, 0, 2, 4, 2);
    struct slr_part part;
    int64_t cols[8], n = 0;
    while (slr_parts_next(&p, &part))
        cols[n++] = part.cols;
    cr_assert_eq(n, 4);
    cr_assert(cols[0] == 4096 && cols[1] == 2048 && cols[2] == 1024 && cols[3] == 1024);
}

Test(gemm_parts, pace)
{
    cr_assert(slr_parts_pace(2, 8192, 2000) > 0.2440 && slr_parts_pace(2, 8192, 2000) < 0.2442);
    cr_assert_eq(slr_parts_pace(4, 8192, 2000), slr_parts_pace(2, 8192, 2000), "half as fast, twice as large");
    cr_assert_eq(slr_parts_pace(2, 0, 2000), 0);
    cr_assert_eq(slr_parts_pace(2, 8192, 0), 0);
}
