/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/blocks.h"

#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/handles.h"

static _Atomic uint32_t resets[SLR_BLOCK_DEVICES];
static _Atomic int freeing;

#define RESET_WAIT_MS 1000

/* Counted first, then waited: whoever begins to free later sees the new number. */
void slr_device_reset(int device)
{
    if (device < 0 || device >= SLR_BLOCK_DEVICES)
        return;
    atomic_fetch_add(&resets[device], 1);
    /* Mappings first: nobody closes one by its address from here on. */
    slr_imports_forget(device);
    for (int ms = 0; ms < RESET_WAIT_MS && atomic_load(&freeing) > 0; ms++)
        slr_sleep_ms(1);
}

uint32_t slr_device_resets(int device)
{
    return device >= 0 && device < SLR_BLOCK_DEVICES ? atomic_load(&resets[device]) : 0;
}

void slr_device_freeing(int change)
{
    atomic_fetch_add(&freeing, change);
}

void slr_device_forget(int device)
{
    slr_imports_forget(device);
    if (!slr_block_ours())
        return;
    slr_block_lock();
    /* Backwards, as vanishing takes a block out of the table. */
    for (size_t i = slr_table_count(); i-- > 0;) {
        struct slr_block *b = slr_table_at(i);
        if (device < 0 || b->device == device)
            slr_block_vanish(b);
    }
    slr_pools_forget(device);
    slr_block_unlock();
}

void slr_device_forget_released(int device)
{
    if (slr_block_ours() && !slr_block_device_active(device))
        slr_device_forget(device);
}
