/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime asked of the fake driver. */
#ifndef LOOK_UP_H
#define LOOK_UP_H

struct look_up {
    char symbol[64];
    int version;
    unsigned long long flags;
};

enum { MAX_LOOK_UPS = 1024 };

struct look_ups {
    unsigned count;
    struct look_up asked[MAX_LOOK_UPS];
};

/* Exported by the fake libcuda.so.1. */
typedef const struct look_ups *(*fakeLookUps_t)(void);

#endif
