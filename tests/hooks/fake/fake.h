/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's one prototype, and what it notes of a call. */
#ifndef TESTS_PRELOAD_FAKE_H
#define TESTS_PRELOAD_FAKE_H

#include <stdint.h>

enum { FAKE_INTS = 14, FAKE_REALS = 8 };

struct fake_call {
    int calls, index, errno_seen;
    uint64_t ints[FAKE_INTS];
    double reals[FAKE_REALS];
};

enum fake_index {
#define X(sym, cls, arg, why) FAKE_IX_##sym,
#include "interpose/gate.def"
    FAKE_IX_COUNT,
    FAKE_UNKNOWN = 500, /* cuMemcpyBatchAsync_v9 */
    FAKE_SECOND         /* what cuGetProcAddress finds for cuStreamAddCallback */
};

#define FAKE_PARAMS                                                                                                    \
    uint64_t i0, uint64_t i1, uint64_t i2, uint64_t i3, uint64_t i4, uint64_t i5, uint64_t i6, uint64_t i7,            \
        uint64_t i8, uint64_t i9, uint64_t i10, uint64_t i11, uint64_t i12, uint64_t i13, double d0, double d1,        \
        double d2, double d3, double d4, double d5, double d6, double d7
#define FAKE_ARGS i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, d0, d1, d2, d3, d4, d5, d6, d7

typedef int (*fake_fn)(FAKE_PARAMS);

/* Exported by the fake driver: the calling thread's last call. */
typedef struct fake_call *(*fake_last_t)(void);

#endif
