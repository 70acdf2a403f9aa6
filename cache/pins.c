/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: what keeps a block from the driver while peers or a gather use it. blocks.h has the rule.
 */
#include "cache/block_state.h"
#include "cache/block_trim.h"
#include "cache/blocks.h"

bool slr_block_pin(uint64_t generation)
{
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b)
        b->pins++;
    slr_block_unlock();
    return b != NULL;
}

void slr_block_unpin(uint64_t generation)
{
    struct slr_block *chain = NULL;
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && b->pins > 0 && --b->pins == 0) {
        if (b->state == SLR_BLOCK_FREE)
            chain = slr_block_unwanted(b);
        else
            slr_block_end_unregistered(b);
    }
    /* Behind the lock: giving back waits for the device. */
    slr_block_unlock();
    slr_block_give_back(chain);
}

void slr_block_mark_collective(uint64_t generation)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && !b->collective) {
        b->collective = true;
        slr_table_update(b);
    }
    slr_block_unlock();
}

bool slr_block_lives(uint64_t generation)
{
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    bool lives = slr_table_by_generation(generation) != NULL;
    slr_block_unlock();
    return lives;
}
