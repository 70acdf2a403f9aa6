/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include "kernels/ring.h"
#include "kernels/scatter.h"

/* The pieces and the chunks cover the shard exactly, in order, and fit a slot. */
static void check(size_t shard, int nranks, size_t slot, uint32_t wanted)
{
    struct slr_plan p = slr_plan_make(shard, nranks, slot, wanted);
    size_t at = 0, last = 0;
    for (uint32_t i = 0; i < p.pieces; i++) {
        cr_assert_eq(slr_plan_piece_begin(&p, i), at, "shard %zu ranks %d slot %zu wanted %u", shard, nranks, slot,
                     wanted);
        size_t n = slr_plan_piece_bytes(&p, i);
        cr_assert(n > 0 && n <= slot);
        at += n;
    }
    cr_assert_eq(at, shard);
    for (uint32_t q = 0; q < p.chunks; q++) {
        size_t end = slr_plan_chunk_end(&p, q);
        cr_assert_gt(end, last);
        last = end;
    }
    cr_assert_eq(last, shard);
    cr_assert_leq((size_t)p.chunks * (size_t)(nranks - 1), SLR_MAX_CHUNK_EVENTS + (size_t)nranks);
    if (wanted && slot >= shard)
        cr_assert_leq(p.pieces, wanted);
}

Test(plan, covers_the_shard)
{
    static const size_t shards[] = {
        1, 3, 511, 512, 513, 4096, 1000003, (1u << 20) + 5, 64u << 20, (size_t)3 << 30, ((size_t)5 << 30) + 1};
    static const size_t slots[] = {4096, 20000 & ~4095u, 1u << 20, 64u << 20, (size_t)1 << 33};
    static const int ranks[] = {2, 3, 8, 64};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++)
        for (size_t l = 0; l < sizeof slots / sizeof *slots; l++)
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
                for (uint32_t wanted = 0; wanted <= 64; wanted += 7)
                    check(shards[s], ranks[r], slots[l], wanted);
}

Test(plan, choice)
{
    cr_expect_eq(slr_plan_make(1, 8, 64u << 20, 0).pieces, 1);
    cr_expect_eq(slr_plan_make(64u << 20, 8, 64u << 20, 0).pieces, 1, "with many ranks the shards are fine enough");
    cr_expect_eq(slr_plan_make(64u << 20, 2, 64u << 20, 0).pieces, 4, "with few ranks they are cut");
    cr_expect_eq(slr_plan_make(4u << 20, 2, 64u << 20, 0).pieces, 1, "small shards are not");
    cr_expect_eq(slr_plan_make(128u << 20, 8, 64u << 20, 0).pieces, 2, "a shard larger than a slot is");
    cr_expect_eq(slr_plan_make(64u << 20, 8, 64u << 20, 5).pieces, 5);
}

/* A shard of a reduce-scatter: what is said to be there is, and what is waited for is enough, and no more. Its meeting has
 * a number of its own. */
static void check_scatter(size_t shard)
{
    const struct slr_plan p = slr_scatter_plan(shard);
    cr_assert_geq(p.pieces, 2, "shard %zu", shard);
    cr_assert_eq(slr_scatter_bound(&p, 0), 0);
    cr_assert_eq(slr_scatter_bound(&p, p.pieces), shard);
    cr_assert_eq(slr_scatter_whole(&p, shard), p.pieces);
    for (uint32_t k = 0; k <= p.pieces; k++) {
        const size_t end = slr_scatter_bound(&p, k);
        cr_assert(end % 16 == 0 || end == shard, "between elements");
        cr_assert(slr_scatter_touched(&p, end) <= k && k <= slr_scatter_whole(&p, end), "shard %zu piece %u", shard, k);
        for (size_t at = end ? end - 1 : 0; at <= end + 1 && at <= shard; at++) {
            cr_assert_leq(slr_scatter_bound(&p, slr_scatter_whole(&p, at)), at, "shard %zu byte %zu", shard, at);
            cr_assert_geq(slr_scatter_bound(&p, slr_scatter_touched(&p, at)), at, "shard %zu byte %zu", shard, at);
        }
    }
}

Test(plan, scatter)
{
    static const size_t shards[] = {1000003, (size_t)64 << 20, 65536 * 7, ((size_t)5 << 30) + 1, (size_t)1 << 40};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++)
        check_scatter(shards[s]);
    for (size_t shard = 1; shard < 8000; shard++)
        check_scatter(shard);
}

/* What a peer has computed in equal parts is said as each is there, and not with the part behind it. */
Test(plan, equal_parts_end_with_pieces)
{
    static const size_t shards[] = {64u << 20, 32u << 20, 1000u << 10, 48u << 20, (size_t)3 << 30};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++)
        for (size_t parts = 1; parts <= 16; parts *= 2) {
            const struct slr_plan p = slr_scatter_plan(shards[s]);
            for (size_t i = 1; i <= parts; i++)
                cr_expect_eq(slr_scatter_whole(&p, shards[s] / parts * i),
                             slr_scatter_touched(&p, shards[s] / parts * i));
        }
}

/* Pieces that are cut for smaller slots fit these, and what waits for chunks waits for as many. */
Test(plan, pieces_are_cut_for_slots_and_chunks_stay)
{
    static const size_t shards[] = {1, 5000, 1000003, (size_t)50 << 20, ((size_t)1 << 30) + 7};
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++)
        for (int ranks = 2; ranks <= 8; ranks *= 2)
            for (size_t slot = 4096; slot <= (size_t)16 << 20; slot *= 16) {
                const struct slr_plan whole = slr_plan_make(shards[s], ranks, (size_t)64 << 20, 0);
                struct slr_plan cut = whole;
                slr_plan_fit(&cut, slot);
                cr_assert(cut.piece <= slot || cut.piece == whole.piece);
                cr_assert_leq(slr_plan_piece_bytes(&cut, 0), slot);
                cr_assert_eq(slr_plan_piece_begin(&cut, cut.pieces - 1) + slr_plan_piece_bytes(&cut, cut.pieces - 1),
                             shards[s]);
                cr_assert_leq(cut.chunks, whole.chunks);
                cr_assert_eq(slr_plan_chunk_end(&cut, cut.chunks - 1), shards[s]);
            }
}
