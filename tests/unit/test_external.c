/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the block cache did not make, on a fake driver. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache/blocks.h"
#include "cache/handles.h"
#include "fake_ipc.h"

Test(external, registered_memory_is_a_block_until_its_last_registration_ends)
{
    struct slr_place at;
    fake_ipc_start();
    cr_assert(slr_external_hold(drv.base + M, M, &at));
    cr_expect_eq(at.offset, M);
    cr_expect_eq(slr_block_find(drv.base).generation, at.generation);
    cr_expect(slr_external_ends_with_registration(at.generation));
    cr_expect(slr_external_hold(drv.base, 4 * M, &at));
    slr_external_release(at.generation);
    cr_expect(slr_block_lives(at.generation));
    slr_external_release(at.generation);
    cr_expect_not(slr_block_lives(at.generation));
    cr_expect_eq(slr_block_find(drv.base).generation, 0);
}

Test(external, a_pinned_block_outlives_its_registration)
{
    struct slr_place at, next;
    fake_ipc_start();
    cr_assert(slr_external_hold(drv.base, M, &at));
    cr_assert(slr_block_pin(at.generation));
    slr_external_release(at.generation);
    cr_expect(slr_block_lives(at.generation));
    slr_block_unpin(at.generation);
    cr_expect_not(slr_block_lives(at.generation));
    cr_expect(slr_external_hold(drv.base, M, &next));
    cr_expect_neq(next.generation, at.generation);
}

Test(external, a_buffer_beyond_its_allocation_stays_unknown)
{
    struct slr_place at;
    fake_ipc_start();
    cr_expect_not(slr_external_hold(drv.base + M, 4 * M, &at));
    cr_assert(slr_external_hold(drv.base, M, &at));
    cr_expect_not(slr_external_hold(drv.base + M, 4 * M, &at));
}

Test(external, plain_memory_that_is_met_is_left_alone)
{
    struct slr_place at;
    fake_ipc_start();
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    drv.legacy = 0;
    cr_expect(slr_external_enter(drv.base, M, &at));
}

Test(external, virtual_memory_needs_a_handle_type_that_can_be_shared)
{
    struct slr_place at;
    fake_ipc_start();
    drv.legacy = 0;
    drv.types = 0;
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    drv.fail = "retain"; /* a pool's */
    drv.types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    cr_expect_eq(drv.retains, drv.releases);
}

static void unmap(CUdeviceptr p, size_t bytes)
{
    slr_external_unmap_begin(p, bytes);
    slr_external_unmap_end(p, bytes);
}

Test(external, unmapping_ends_the_generation)
{
    struct slr_place at, next;
    fake_ipc_start();
    drv.legacy = 0;
    cr_assert(slr_external_enter(drv.base, M, &at));
    cr_expect_not(slr_external_ends_with_registration(at.generation));
    unmap(drv.base, drv.size);
    cr_expect_not(slr_block_lives(at.generation));
    cr_assert(slr_external_enter(drv.base, M, &next));
    cr_expect_neq(next.generation, at.generation);
    unmap(drv.base + 8 * M, M);
    cr_expect(slr_block_lives(next.generation));
}

/* It is freed by another call than cuMemUnmap, perhaps; then others are given the address before that has ended. */
Test(external, what_comes_after_an_unmapping_lives)
{
    struct slr_place at, next;
    fake_ipc_start();
    drv.legacy = 0;
    cr_assert(slr_external_enter(drv.base, M, &at));
    slr_external_unmap_begin(drv.base, drv.size);
    cr_expect_not(slr_block_lives(at.generation));
    cr_expect_not(slr_external_enter(drv.base, M, &next), "what is being unmapped has been entered");
    slr_external_unmap_begin(drv.base, drv.size); /* a call within */
    slr_external_unmap_end(drv.base, drv.size);
    cr_expect_not(slr_external_enter(drv.base, M, &next));
    drv.base += 64 * M;
    cr_expect(slr_external_enter(drv.base, M, &next), "other memory is not concerned");
    drv.base -= 64 * M;
    slr_external_unmap_end(drv.base, drv.size);
    cr_assert(slr_external_enter(drv.base, M, &next));
    cr_expect(slr_block_lives(next.generation));
}

Test(external, more_unmappings_at_a_time_than_are_listed)
{
    enum { MANY = 40 };
    struct slr_place at;
    fake_ipc_start();
    drv.legacy = 0;
    for (CUdeviceptr i = 0; i < MANY; i++)
        slr_external_unmap_begin(drv.base + (100 + i) * drv.size, drv.size);
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    for (CUdeviceptr i = 0; i < MANY; i++)
        slr_external_unmap_end(drv.base + (100 + i) * drv.size, drv.size);
    cr_expect(slr_external_enter(drv.base, M, &at));
}

static void unmapped_now(void)
{
    unmap(drv.base, drv.size);
}

/* The driver's answer may be of the time before. */
Test(external, memory_that_is_unmapped_meanwhile_is_not_entered)
{
    struct slr_place at;
    fake_ipc_start();
    drv.legacy = 0;
    drv.while_range = unmapped_now;
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    drv.while_range = NULL;
    drv.while_retain = unmapped_now;
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    cr_expect_eq(slr_block_find(drv.base).generation, 0);
}

Test(external, memory_that_is_unmapped_meanwhile_is_not_exported)
{
    struct slr_place at;
    fake_ipc_start();
    drv.legacy = 0;
    cr_assert(slr_external_enter(drv.base, M, &at));
    struct slr_pieces made;
    cr_expect_eq(slr_export_descriptors(at.generation, &made), SLR_EXPORT_MADE);
    cr_assert_eq(made.count, 1);
    cr_expect_neq(fcntl(made.fd[0], F_GETFD) & FD_CLOEXEC, 0);
    slr_pieces_close(&made);
    drv.while_retain = unmapped_now;
    cr_expect_eq(slr_export_descriptors(at.generation, &made), SLR_EXPORT_REFUSED);
    cr_expect_eq(made.count, 0);
    cr_expect_eq(drv.retains, drv.releases);
}

Test(external, freed_while_registered_it_stays_until_it_is_unpinned)
{
    CUdeviceptr p;
    struct slr_place at;
    fake_ipc_start();
    cr_assert_eq(slr_real.cuMemAlloc(&p, 4 * M), CUDA_SUCCESS); /* not the cache's */
    drv.base = p;
    cr_assert(slr_external_hold(p, M, &at));
    cr_assert(slr_block_pin(at.generation));
    cr_expect_eq(slr_block_free(p), CUDA_SUCCESS);
    cr_expect_eq(fake_size_at(p), 4 * M);
    slr_block_unpin(at.generation);
    cr_expect_eq(fake_size_at(p), 0);
    slr_external_release(at.generation);
}

static int left;

static void another_is_unmapped(void)
{
    if (left-- > 0)
        unmap(drv.base + 8 * M, M);
}

/* Whoever wants to keep it asks again. */
Test(external, memory_is_held_although_other_memory_is_unmapped_meanwhile)
{
    struct slr_place at;
    fake_ipc_start();
    drv.legacy = 0;
    drv.while_retain = another_is_unmapped;
    left = 1;
    cr_expect_not(slr_external_enter(drv.base, M, &at));
    left = 3;
    cr_assert(slr_external_hold(drv.base, M, &at));
    cr_expect_eq(drv.retains, 5);
    cr_expect_eq(drv.retains, drv.releases);
}

/* ---- runs of mappings ---- */

static void many_pieces(unsigned n)
{
    fake_ipc_start();
    drv.legacy = 0;
    drv.pieces = n;
    drv.reserved = 1000 * drv.size;
}

static uint64_t entered(unsigned piece, size_t bytes)
{
    struct slr_place at = {0};
    slr_external_enter(drv.base + piece * drv.size, bytes, &at);
    return at.generation;
}

Test(external, a_buffer_in_several_mappings_is_one_block_with_their_neighbours)
{
    struct slr_place at;
    struct slr_pieces made;
    many_pieces(6);
    cr_assert(slr_external_enter(drv.base + 2 * drv.size + M, drv.size, &at));
    cr_expect_eq(at.base, drv.base);
    cr_expect_eq(at.size, 6 * drv.size);
    cr_expect_eq(at.offset, 2 * drv.size + M);
    cr_assert_eq(slr_export_descriptors(at.generation, &made), SLR_EXPORT_MADE);
    cr_expect_eq(made.count, 6);
    for (unsigned i = 0; i < made.count; i++)
        cr_expect_eq(made.bytes[i], drv.size);
    slr_pieces_close(&made);
    cr_expect_eq(drv.retains, drv.releases);
    unmap(drv.base + 4 * drv.size, drv.size);
    cr_expect_not(slr_block_lives(at.generation), "a part of it may be other memory");
    cr_assert(slr_external_enter(drv.base + 2 * drv.size + M, drv.size, &at));
    cr_expect_eq(at.size, 2 * drv.size, "who unmaps parts gets blocks of what is used");
}

Test(external, a_block_ends_with_its_reservation)
{
    struct slr_place at;
    many_pieces(6);
    drv.reserved = 4 * drv.size;
    cr_assert(slr_external_enter(drv.base + 2 * drv.size, M, &at));
    cr_expect_eq(at.base, drv.base);
    cr_expect_eq(at.size, 4 * drv.size);
    cr_expect_not(slr_external_enter(drv.base + 3 * drv.size, 2 * drv.size, &at));
    cr_expect(slr_external_enter(drv.base, M, &at));
}

Test(external, without_the_cache_a_block_is_what_is_registered)
{
    struct slr_place at, more;
    many_pieces(6);
    setenv("SLIPRING_ALLOC", "off", 1);
    cr_assert(slr_external_hold(drv.base + 2 * drv.size, M, &at));
    cr_expect_eq(at.size, drv.size);
    cr_expect_not(slr_external_hold(drv.base + 2 * drv.size, 2 * drv.size, &more),
                  "nobody says when a part is unmapped");
    cr_expect(slr_block_lives(at.generation));
}

Test(external, blocks_that_a_buffer_cuts_become_part_of_its_block)
{
    struct slr_place at;
    many_pieces(200);
    const uint64_t low = entered(0, 2 * drv.size), high = entered(199, M);
    cr_assert(low && high);
    cr_expect_eq(slr_block_find(drv.base + 64 * drv.size).generation, 0, "a run grows to 64 pieces");
    cr_assert(slr_external_enter(drv.base + 63 * drv.size, 4 * drv.size, &at));
    cr_expect_eq(at.base, drv.base);
    cr_expect_eq(at.size, 67 * drv.size);
    cr_expect_not(slr_block_lives(low));
    cr_expect(slr_block_lives(high));
    cr_expect_eq(slr_block_find(drv.base + 136 * drv.size).generation, high);
    cr_expect_eq(slr_block_find(drv.base + 135 * drv.size).generation, 0);
    cr_expect_eq(entered(10, 3 * drv.size), at.generation, "what has been entered stays");
}

Test(external, more_pieces_than_a_message_carries)
{
    struct slr_place at;
    many_pieces(300);
    cr_expect_not(slr_external_enter(drv.base, 241 * drv.size, &at));
    cr_expect(slr_external_enter(drv.base, 240 * drv.size, &at));
}

static void unmapped_neighbour(void)
{
    unmap(drv.base + 5 * drv.size, M);
}

Test(external, a_neighbour_that_is_unmapped_meanwhile)
{
    struct slr_place at;
    many_pieces(6);
    drv.while_retain = unmapped_neighbour;
    cr_expect_not(slr_external_enter(drv.base, 2 * drv.size, &at));
    drv.while_retain = NULL;
    cr_expect(slr_external_enter(drv.base, 2 * drv.size, &at));
}
