/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/capture_way.h"

#define RING UINT64_C(1)

bool slr_capture_way(_Atomic uint64_t *word, unsigned words, size_t shard, const struct slr_collective *kind, bool wish)
{
    const uint64_t size = (uint64_t)shard << 2 | (uint64_t)kind->id << 1;
    for (unsigned i = 0; i < words; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&word[i], &found, size | (wish ? RING : 0)))
            return wish;
        if ((found & ~RING) == size)
            return found & RING;
    }
    return false;
}
