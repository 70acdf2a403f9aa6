/* SPDX-License-Identifier: Apache-2.0 */
/* One 64-bit hash for keys, digests and slots of tables. Ranks compare what it makes, so another
 * function needs a new SLR_CONTROL_MAGIC (plugin/comm/control.h). Not for secrets: sha256.h. */
#ifndef SLR_BASE_MIX_H
#define SLR_BASE_MIX_H

#include <stdint.h>

/* Not symmetric. Each step is a bijection of `h` for fixed `b`, and each bit of the input reaches
 * all bits of the output. */
static inline uint64_t slr_mix(uint64_t a, uint64_t b)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u + b;
    for (int round = 0; round < 3; round++) {
        h ^= h >> 32;
        h *= 0xd6e8feb86659fd93u;
    }
    return h ^ h >> 32;
}

#endif
