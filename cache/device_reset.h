/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a device's primary context while the process lives: by a reset, or by the last release
 * of it. What was in it goes, and the addresses may soon be other memory's. The hooks call these
 * around the driver's functions. Thread-safe. */
#ifndef SLR_CACHE_DEVICE_RESET_H
#define SLR_CACHE_DEVICE_RESET_H

#include <stdint.h>

/* The device's primary context is about to be destroyed, by a reset or its last release, or has
 * just been: what was in it goes, and the addresses may soon be other memory's. From here on
 * nothing of it is freed, unregistered or closed by address, also when the new context has the
 * handle of the old one. Waits, at most a second, for frees that are on their way. */
void slr_device_reset(int device);

/* How often that was. Who keeps addresses of a context remembers the number, and compares it before
 * they are used, between slr_device_freeing(1) and slr_device_freeing(-1). */
uint32_t slr_device_resets(int device);
void slr_device_freeing(int change);

/* The context or device has been destroyed or reset: its blocks are gone, and are forgotten without
 * being freed. `device` -1: all. */
void slr_device_forget(int device);

/* cuDevicePrimaryCtxRelease has been called: forgets the device's blocks if that was the last
 * reference. */
void slr_device_forget_released(int device);

#endif
