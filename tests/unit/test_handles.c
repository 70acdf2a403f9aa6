/* SPDX-License-Identifier: Apache-2.0 */
/* The IPC handle cache on a fake driver. */
#include <criterion/criterion.h>
#include <string.h>
#include "base/counters.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "fake_ipc.h"

/* ---- imports ---- */

static const struct slr_export legacy = {.kind = SLR_EXPORT_HANDLE, .size = M};
static const struct slr_export by_fd = {.kind = SLR_EXPORT_DESCRIPTORS, .size = 3 * M};

static enum slr_import_result open_one(uint64_t process, uint64_t generation, int device, CUdeviceptr *base)
{
    struct slr_import_key key = {.process = process, .generation = generation, .device = device};
    return slr_import_open(&key, &legacy, NULL, base);
}

static bool close_one(uint64_t process, uint64_t generation, int device)
{
    struct slr_import_key key = {.process = process, .generation = generation, .device = device};
    return slr_import_close(&key);
}

Test(handles, a_block_is_opened_once_and_closed_with_its_last_use)
{
    CUdeviceptr a, b;
    fake_ipc_start();
    cr_expect_eq(open_one(1, 1, 0, &a), SLR_IMPORT_OK);
    cr_expect_eq(open_one(1, 1, 0, &b), SLR_IMPORT_OK);
    cr_expect_eq(a, b);
    cr_expect_eq(drv.opens, 1);
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(drv.closes, 0);
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(drv.closes, 1);
    cr_expect_eq(slr_counters.imports, 1);
    cr_expect_eq(slr_counters.import_hits, 1);
    cr_expect_eq(slr_counters.import_closes, 1);
}

Test(handles, process_generation_and_device_tell_blocks_apart)
{
    CUdeviceptr p[4];
    fake_ipc_start();
    cr_expect_eq(open_one(1, 1, 0, &p[0]), SLR_IMPORT_OK);
    cr_expect_eq(open_one(2, 1, 0, &p[1]), SLR_IMPORT_OK);
    cr_expect_eq(open_one(1, 2, 0, &p[2]), SLR_IMPORT_OK);
    cr_expect_eq(open_one(1, 1, 1, &p[3]), SLR_IMPORT_OK);
    cr_expect_eq(drv.opens, 4);
    cr_expect(close_one(1, 1, 1));
    cr_expect_eq(open_one(1, 1, 0, &p[3]), SLR_IMPORT_OK);
    cr_expect_eq(p[3], p[0]);
}

Test(handles, a_full_table_refuses_new_blocks_and_serves_old_ones)
{
    CUdeviceptr p;
    fake_ipc_start();
    for (uint64_t g = 1; g <= SLR_IMPORTS; g++)
        cr_assert_eq(open_one(1, g, 0, &p), SLR_IMPORT_OK);
    cr_expect_eq(open_one(1, SLR_IMPORTS + 1, 0, &p), SLR_IMPORT_LATER);
    cr_expect_eq(open_one(1, 5, 0, &p), SLR_IMPORT_OK);
    cr_expect_eq(drv.opens, SLR_IMPORTS);
    close_one(1, 7, 0);
    cr_expect_eq(open_one(1, SLR_IMPORTS + 1, 0, &p), SLR_IMPORT_OK);
}

static enum slr_import_result seen;

static void open_the_same(void)
{
    CUdeviceptr p;
    drv.while_open = drv.while_close = NULL;
    seen = open_one(1, 1, 0, &p);
}

Test(handles, who_meets_another_at_work_comes_later)
{
    CUdeviceptr p;
    fake_ipc_start();
    drv.while_open = open_the_same;
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_OK);
    cr_expect_eq(seen, SLR_IMPORT_LATER);
    seen = SLR_IMPORT_OK;
    drv.while_close = open_the_same;
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(seen, SLR_IMPORT_LATER);
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_OK);
    cr_expect_eq(drv.opens, 2);
}

Test(handles, what_can_not_be_opened_leaves_nothing)
{
    CUdeviceptr p;
    fake_ipc_start();
    drv.fail_open = true;
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_FAILED);
    drv.fail_open = false;
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_OK);
}

Test(handles, what_can_not_be_closed_is_used_again)
{
    CUdeviceptr a, b;
    fake_ipc_start();
    open_one(1, 1, 0, &a);
    drv.fail_close = true;
    cr_expect_not(close_one(1, 1, 0));
    drv.fail_close = false;
    cr_expect_eq(open_one(1, 1, 0, &b), SLR_IMPORT_OK);
    cr_expect_eq(a, b);
    cr_expect_eq(drv.opens, 1);
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(slr_counters.import_closes, 0, "whose close failed still has it");
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(slr_counters.import_closes, 1);
}

Test(handles, a_reset_takes_the_mappings_of_its_device)
{
    CUdeviceptr p;
    fake_ipc_start();
    open_one(1, 1, 0, &p);
    open_one(1, 1, 1, &p);
    slr_imports_forget(0);
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_LATER, "as long as somebody still counts on the old one");
    cr_expect(close_one(1, 1, 0));
    cr_expect_eq(drv.closes, 0, "there is nothing left to close");
    cr_expect_eq(open_one(1, 1, 0, &p), SLR_IMPORT_OK);
    cr_expect(close_one(1, 1, 1));
    cr_expect_eq(drv.closes, 1);
}

Test(handles, descriptors_are_mapped_and_every_failure_is_undone)
{
    static const char *const calls[] = {"import", "import again", "reserve", "map", "map again", "access"};
    struct slr_pieces three = {.count = 3, .bytes = {M, M, M}, .fd = {3, 4, 5}};
    struct slr_import_key key = {.process = 1, .generation = 1, .device = 0};
    CUdeviceptr p;
    fake_ipc_start();
    cr_expect_eq(slr_import_open(&key, &by_fd, NULL, &p), SLR_IMPORT_NEEDS_DESCRIPTOR);
    three.bytes[1] = 2 * M;
    cr_expect_eq(slr_import_open(&key, &by_fd, &three, &p), SLR_IMPORT_FAILED, "not what the owner exports");
    cr_expect_eq(drv.maps, 0);
    three.bytes[1] = M;
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        drv.fail = calls[i];
        cr_expect_eq(slr_import_open(&key, &by_fd, &three, &p), SLR_IMPORT_FAILED, "%s", calls[i]);
        cr_expect(drv.maps == drv.unmaps && drv.reserves == drv.frees && drv.retains == drv.releases, "%s", calls[i]);
    }
    drv.fail = NULL;
    cr_expect_eq(slr_import_open(&key, &by_fd, &three, &p), SLR_IMPORT_OK);
    cr_expect_eq(drv.retains, drv.releases);
    cr_expect_eq(slr_import_open(&key, &by_fd, NULL, &p), SLR_IMPORT_OK, "a mapping that is there needs no descriptor");
    slr_import_close(&key);
    cr_expect(slr_import_close(&key));
    cr_expect(drv.maps == drv.unmaps && drv.reserves == drv.frees);
}

/* ---- exports ---- */

Test(handles, a_block_is_exported_once)
{
    CUdeviceptr p;
    struct slr_export a, b;
    fake_ipc_start();
    cr_assert_eq(slr_block_alloc(&p, 4 * M), CUDA_SUCCESS);
    uint64_t generation = slr_block_find(p).generation;
    cr_expect(slr_export_block(generation, 0, &a) && slr_export_block(generation, 0, &b));
    cr_expect_eq(drv.gets, 1);
    cr_expect_eq(slr_counters.exports, 1);
    cr_expect_eq(memcmp(&a, &b, sizeof a), 0);
    cr_expect_not(slr_export_block(generation + 1, 0, &a));
    cr_expect_not(slr_export_block(generation, 1, &a), "it is another device's");
}

Test(handles, what_is_not_exportable_is_asked_once)
{
    CUdeviceptr p;
    struct slr_export e;
    fake_ipc_start();
    drv.legacy = 0;
    cr_assert_eq(slr_block_alloc(&p, 4 * M), CUDA_SUCCESS);
    cr_expect_not(slr_export_block(slr_block_find(p).generation, 0, &e));
    drv.legacy = 1;
    cr_expect_not(slr_export_block(slr_block_find(p).generation, 0, &e));
    cr_expect_eq(drv.gets, 0);
}
