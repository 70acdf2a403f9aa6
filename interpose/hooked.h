/* SPDX-License-Identifier: Apache-2.0 */
/* All functions that are hooked (gate.def, base/hooks.def), by name. */
#ifndef SLR_INTERPOSE_HOOKED_H
#define SLR_INTERPOSE_HOOKED_H

#include <stdint.h>
#include "interpose/gate.h"
#include "interpose/resolve.h"

enum {
    SLR_HOOKED_BY_HAND = 0
#define L(sym) +1
#define P(sym) +1
#define N(need, sym) +1
#define B N
#define T N
#include "base/hooks.def"
    ,
    SLR_HOOKED = SLR_GATE_COUNT + SLR_HOOKED_BY_HAND,
    SLR_HOOKED_BUCKETS = 1024
};

struct slr_hooked {
    const char *name;
    void *const *real; /* where the real one is, once its library is found; NULL: it lacks that one */
    enum slr_lib lib;
};
extern const struct slr_hooked slr_hooked[SLR_HOOKED];

const struct slr_hooked *slr_hooked_find(const char *name); /* NULL: not hooked */

/* Tables of these, open addressing: an entry is an index plus one, 0 none. */
unsigned slr_hooked_bucket(uint64_t key);
void slr_hooked_insert(uint16_t table[SLR_HOOKED_BUCKETS], uint64_t key, unsigned i);

#endif
