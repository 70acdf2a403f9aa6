/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: a quick one for keys, digests and slots of tables, and one that gives nothing away. */
#ifndef SLR_BASE_HASH_H
#define SLR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Not symmetric; a bijection of `h` in each step for fixed `b`. Ranks compare what it makes, so
 * another function needs a new SLR_CONTROL_MAGIC (plugin/comm/control.h). Not for secrets. */
static inline uint64_t slr_mix(uint64_t a, uint64_t b)
{
    uint64_t h = a * 0x9e3779b97f4a7c15u + b;
    for (int round = 0; round < 3; round++) {
        h ^= h >> 32;
        h *= 0xd6e8feb86659fd93u;
    }
    return h ^ h >> 32;
}

/* SHA-256 (FIPS 180-4), for keys and for names that must not give away what they are made from. Not
 * for bulk data. */
#define SLR_SHA256_BYTES 32

struct slr_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
};

void slr_sha256_begin(struct slr_sha256 *h);
void slr_sha256_add(struct slr_sha256 *h, const void *data, size_t bytes);

/* The digest of everything added. Wipes *h. */
void slr_sha256_end(struct slr_sha256 *h, uint8_t digest[SLR_SHA256_BYTES]);

#endif
