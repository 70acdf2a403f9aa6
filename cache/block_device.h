/* The devices as the block cache sees them: which one a call is for, and how much may be kept on it. */
#ifndef SLR_CACHE_BLOCK_DEVICE_H
#define SLR_CACHE_BLOCK_DEVICE_H

#include "cache/kept.h"

#define SLR_BLOCK_DEVICES 64

struct slr_block_device {
    uint64_t budget;
    uint32_t ordinals;
    uint64_t leaving; /* bytes that threads are giving back to the driver now */
    struct slr_kept kept;
};

/* The device whose primary context is current, or -1; `*ctx` is that context. Makes driver calls: not under the lock.
 */
int slr_block_device_current(CUcontext *ctx);

/* Bytes that may be kept on `device`, of the settings and the device's memory. Driver call, likewise. */
uint64_t slr_block_device_budget(int device);

/* Whether the device's primary context exists. Driver call, likewise. */
bool slr_block_device_active(int device);

/* The device's primary context is about to be destroyed, by a reset or its last release, or has just been: what was in
 * it goes, and the addresses may soon be other memory's. From here on nothing of it is freed, unregistered or closed by
 * address, also when the new context has the handle of the old one. Waits, at most a second, for frees that are on
 * their way. */
void slr_device_reset(int device);

/* How often that was. Who keeps addresses of a context remembers the number, and compares it before they are used,
 * between slr_device_freeing(1) and slr_device_freeing(-1). */
uint32_t slr_device_resets(int device);
void slr_device_freeing(int change);

#endif
