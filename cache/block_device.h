/* SPDX-License-Identifier: Apache-2.0 */
/* The devices as the block cache sees them: which one a call is for, and how much may be kept on
 * it. */
#ifndef SLR_CACHE_BLOCK_DEVICE_H
#define SLR_CACHE_BLOCK_DEVICE_H

#include "cache/free_list.h"

#define SLR_BLOCK_DEVICES 64

struct slr_block_device {
    uint64_t budget;
    uint32_t ordinals;
    uint64_t returning; /* bytes that threads are giving back to the driver now */
    struct slr_free_list free;
};

/* The device whose primary context is current, or -1; `*ctx` is that context. Makes driver calls:
 * not under the lock. */
int slr_block_device_current(CUcontext *ctx);

/* Bytes that may be kept on `device`, of the settings and the device's memory. Driver call,
 * likewise. */
uint64_t slr_block_device_budget(int device);

/* Whether the device's primary context exists. Driver call, likewise. */
bool slr_block_device_active(int device);

#endif
