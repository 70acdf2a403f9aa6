/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), for keys and for names that must not give away what they are made from. Not
 * for bulk data: a few hundred bytes for each communicator. */
#ifndef SLR_BASE_SHA256_H
#define SLR_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

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
