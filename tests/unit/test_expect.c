/* SPDX-License-Identifier: Apache-2.0 */
/* Expected places: what is trusted after which calls, for buffers that were used together before and for others. */
#include <criterion/criterion.h>
#include "cache/blocks.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/transfer/transfer.h"

enum { RANKS = 3, ME = 1, PEER = 2 };
#define SHARD ((size_t)4096)
#define OWN_BLOCK UINT64_C(7)
#define PEERS_BLOCK UINT64_C(99)

static struct slr_comm comm;
/* Never read. At an address of its own: where it is chosen anew each time, now and then two places fall together in the tables,
 * which then is as it should be. */
static char *const memory = (char *)UINT64_C(0x7f0000000000);
#define MEMORY ((size_t)1 << 20)

static void fresh(void)
{
    slr_expect_free(&comm);
    comm = (struct slr_comm){.rank = ME, .nranks = RANKS};
}

static struct slr_call call_from(size_t offset, bool in_place)
{
    return (struct slr_call){.comm = &comm,
                             .send = memory + offset,
                             .recv = in_place ? memory + offset - ME * SHARD : memory + MEMORY / 2,
                             .shard = SHARD,
                             .number = ++comm.substituted};
}

/* The place that is expected for a call from this offset of the block, as the transfer of the call would ask. */
static struct slr_remote_place expected_at(size_t offset, bool in_place, bool once)
{
    const struct slr_call call = call_from(offset, in_place);
    const struct slr_place send = {.generation = OWN_BLOCK, .size = MEMORY, .offset = offset};
    cr_assert(slr_expect_begin(&call, &send));
    return slr_expected_place(&call, PEER, once);
}

/* The same, and then the peer names where it was. */
static struct slr_remote_place call_at(size_t offset, bool in_place, size_t peers)
{
    const struct slr_remote_place expected = expected_at(offset, in_place, false);
    slr_expect_learn(&comm, PEER, comm.substituted,
                     (struct slr_remote_place){.generation = peers ? PEERS_BLOCK : 0, .offset = peers});
    return expected;
}

#define NOTHING(place) cr_expect_eq((place).generation, 0)
#define PLACE(place, at)                                                                                               \
    do {                                                                                                               \
        const struct slr_remote_place is = place;                                                                      \
        cr_expect_eq(is.generation, PEERS_BLOCK);                                                                      \
        cr_expect_eq(is.offset, (uint64_t)(at));                                                                       \
    } while (0)

Test(expect, the_same_buffers_are_trusted_when_a_place_was_named_twice)
{
    fresh();
    NOTHING(call_at(8192, false, 5000));
    PLACE(expected_at(8192, false, true), 5000);
    NOTHING(call_at(8192, false, 5000));
    PLACE(call_at(8192, false, 5000), 5000);
    PLACE(call_at(8192, false, 6000), 5000);
    NOTHING(call_at(8192, false, 6000));
    PLACE(call_at(8192, false, 6000), 6000);
    fresh();
}

/* As a model has in each step. At no distance that was seen before. */
Test(expect, many_buffers_do_not_drive_each_other_out)
{
    enum { MANY = 48 };
    fresh();
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < MANY; i++) {
            const struct slr_remote_place place = call_at(4096 * i, false, 1 + i * i * i);
            if (round == 2)
                PLACE(place, 1 + i * i * i);
        }
    fresh();
}

Test(expect, the_latest_stay_when_too_many_fall_together)
{
    enum { MANY = 2000, LATE = 16 };
    fresh();
    for (size_t i = 0; i < MANY; i++)
        call_at(64 * i, false, 1 + i * i * i);
    for (size_t i = MANY - LATE; i < MANY; i++)
        PLACE(expected_at(64 * i, false, true), 1 + i * i * i);
    fresh();
}

Test(expect, other_buffers_are_trusted_when_two_offsets_had_the_same_distance)
{
    fresh();
    NOTHING(call_at(8192, false, 18192));
    NOTHING(call_at(12288, false, 22288));
    PLACE(call_at(16384, false, 26384), 26384);
    PLACE(expected_at(20480, false, true), 30480);
    /* Smaller offsets, too. */
    PLACE(call_at(4096, false, 14096), 14096);
    fresh();
}

Test(expect, one_offset_shows_no_distance)
{
    fresh();
    for (int i = 0; i < 5; i++)
        call_at(8192, false, 18192);
    NOTHING(call_at(12288, false, 22288));
    PLACE(call_at(16384, false, 26384), 26384);
    fresh();
}

Test(expect, a_wrong_distance_has_to_be_shown_again)
{
    fresh();
    call_at(8192, false, 18192);
    call_at(12288, false, 22288);
    PLACE(call_at(16384, false, 1), 26384);
    NOTHING(call_at(20480, false, 30480));
    NOTHING(call_at(24576, false, 34576));
    PLACE(call_at(28672, false, 38672), 38672);
    /* As it has to when the peer's place has no name. */
    call_at(32768, false, 0);
    NOTHING(call_at(36864, false, 46864));
    fresh();
}

Test(expect, in_place_the_shards_between_the_ranks_count)
{
    fresh();
    call_at(ME * SHARD, true, PEER * SHARD);
    call_at(ME * SHARD + 512, true, PEER * SHARD + 512);
    PLACE(call_at(ME * SHARD + 1024, true, 1), PEER * SHARD + 1024);
    fresh();
}

Test(expect, in_place_and_not_are_apart)
{
    fresh();
    call_at(8192, false, 18192);
    call_at(12288, false, 22288);
    NOTHING(expected_at(16384, true, false));
    PLACE(expected_at(16384, false, false), 26384);
    fresh();
}

Test(expect, what_was_named_once_beats_a_distance)
{
    fresh();
    call_at(4096, false, 77777);
    call_at(8192, false, 18192);
    call_at(12288, false, 22288);
    PLACE(expected_at(16384, false, false), 26384);
    NOTHING(expected_at(4096, false, false)); /* 14096 by the distance */
    PLACE(expected_at(4096, false, true), 77777);
    fresh();
}

Test(expect, memory_in_no_block_has_no_distance)
{
    fresh();
    call_at(8192, false, 18192);
    call_at(12288, false, 22288);
    struct slr_call call = {
        .comm = &comm, .send = memory, .recv = memory, .shard = SHARD, .number = ++comm.substituted};
    cr_assert(slr_expect_begin(&call, &(struct slr_place){0}));
    NOTHING(slr_expected_place(&call, PEER, true));
    fresh();
}

static struct slr_expect_site *latest;

/* What is expected of a gather in a context; a GEMM then takes it over, waiting for chunks, or none does. */
static enum slr_wanted wanted_at(size_t offset, uint64_t context, bool whole, bool consumed)
{
    const struct slr_call call = call_from(offset, false);
    const struct slr_expectation x = slr_expect_of(&call, context, whole, true);
    if (consumed)
        slr_expect_consumed(x.site, true);
    latest = x.site;
    return x.wanted;
}

Test(expect, a_gather_is_wanted_as_the_latest_one_was_behind_the_same_calls)
{
    fresh();
    cr_expect_eq(wanted_at(4096, 1, false, true), SLR_WANTS_CHUNKS);
    cr_expect_eq(wanted_at(4096, 2, false, false), SLR_WANTS_CHUNKS);
    for (int i = 0; i < 3; i++) { /* the same buffers, for a GEMM and for none */
        cr_expect_eq(wanted_at(4096, 1, false, true), SLR_WANTS_CHUNKS);
        cr_expect_eq(wanted_at(4096, 2, false, false), SLR_WANTS_NOTHING);
    }
    cr_expect_eq(wanted_at(4096, 1, false, false), SLR_WANTS_CHUNKS);
    cr_expect_eq(wanted_at(4096, 1, false, false), SLR_WANTS_NOTHING);
    fresh();
}

Test(expect, a_turn_of_whole_GEMMs_tells_nothing_of_the_next_one)
{
    fresh();
    wanted_at(4096, 1, false, true);
    cr_expect_eq(wanted_at(4096, 1, true, false), SLR_WANTS_NOTHING);
    cr_expect_eq(wanted_at(4096, 1, true, false), SLR_WANTS_NOTHING);
    cr_expect_eq(wanted_at(4096, 1, false, true), SLR_WANTS_CHUNKS);
    cr_expect_eq(wanted_at(4096, 1, false, false), SLR_WANTS_CHUNKS);
    cr_expect_eq(wanted_at(4096, 1, true, false), SLR_WANTS_NOTHING);
    cr_expect_eq(wanted_at(4096, 1, false, false), SLR_WANTS_NOTHING);
    fresh();
}

Test(expect, whole_shards_are_enough_when_nobody_has_wanted_less_for_long)
{
    fresh();
    for (int i = 0; i < 32; i++) {
        cr_expect_eq(wanted_at(4096, 1, false, false), SLR_WANTS_CHUNKS);
        slr_expect_consumed(latest, false);
    }
    cr_expect_eq(wanted_at(4096, 1, false, true), SLR_WANTS_SHARDS);
    cr_expect_eq(wanted_at(4096, 1, false, true), SLR_WANTS_CHUNKS);
    fresh();
}

/* Whether the next call's GEMM is expected to write to `send`; one that does is noted. */
static bool overwritten_at(size_t offset, uint64_t context, bool writes)
{
    const struct slr_call call = call_from(offset, false);
    const struct slr_expectation x = slr_expect_of(&call, context, false, true);
    if (writes)
        slr_expect_overwritten(x.site);
    latest = x.site;
    cr_expect(!x.overwritten || x.wanted != SLR_WANTS_NOTHING, "it moves for a GEMM");
    return x.overwritten;
}

Test(expect, a_send_buffer_that_was_written_to_will_be_again)
{
    fresh();
    cr_expect(!overwritten_at(4096, 1, true));
    cr_expect(!overwritten_at(4096, 2, false), "behind other calls");
    cr_expect(!overwritten_at(8192, 1, false), "from another buffer");
    for (int i = 0; i < 100; i++)
        cr_expect(overwritten_at(4096, 1, true));
    for (int i = 0; i < 32; i++)
        cr_expect(overwritten_at(4096, 1, false), "%d", i);
    cr_expect(!overwritten_at(4096, 1, false), "not any more");
    fresh();
}

Test(expect, a_turn_of_whole_GEMMs_moves_nothing)
{
    fresh();
    overwritten_at(4096, 1, true);
    const struct slr_call call = call_from(4096, false);
    cr_expect(!slr_expect_of(&call, 1, true, true).overwritten);
    cr_expect(overwritten_at(4096, 1, false));
    fresh();
}

Test(expect, what_can_not_move_or_was_refused_does_not)
{
    fresh();
    overwritten_at(4096, 1, true);
    const struct slr_call call = call_from(4096, false);
    const struct slr_expectation x = slr_expect_of(&call, 1, false, false);
    cr_expect(!x.overwritten);
    cr_expect_eq(x.wanted, SLR_WANTS_NOTHING, "the GEMM runs whole");
    cr_expect(overwritten_at(4096, 1, true));
    slr_expect_refused(latest);
    cr_expect(!overwritten_at(4096, 1, true));
    cr_expect(!overwritten_at(4096, 1, true), "for good");
    fresh();
}
