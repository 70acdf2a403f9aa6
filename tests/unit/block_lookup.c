/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in a table of blocks, for counting instructions: lookup_cost.sh.
 *
 *   block_lookup BLOCKS LOOKUPS find|nothing
 *
 * `nothing` makes the addresses and does not look them up: what the loop itself costs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/block_impl.h"
#include "cache/blocks.h"

enum { SIZE = 2 << 20 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    uint64_t blocks = strtoull(argv[1], NULL, 0), lookups = strtoull(argv[2], NULL, 0), state = 88172645463325252u;
    bool find = strcmp(argv[3], "find") == 0;
    struct slr_block *b = calloc(blocks, sizeof(*b));
    CUdeviceptr base = (CUdeviceptr)1 << 40;
    uint64_t sum = 0;
    for (uint64_t i = 0; b && i < blocks; i++) {
        b[i] = (struct slr_block){.base = base + 2 * i * SIZE, .size = SIZE, .generation = i + 1};
        if (!slr_table_insert(&b[i]))
            return 3;
    }
    for (uint64_t i = 0; i < lookups; i++) {
        uint64_t random = next(&state), n = (uint64_t)((unsigned __int128)random * blocks >> 64);
        CUdeviceptr p = base + 2 * n * SIZE + (random & (SIZE - 1));
        sum += find ? slr_block_find(p).generation - n : 1;
    }
    if (sum != lookups) { /* every one was found */
        fprintf(stderr, "%llu of %llu\n", (unsigned long long)sum, (unsigned long long)lookups);
        return 1;
    }
    return 0;
}
