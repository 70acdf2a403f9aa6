/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory of slipring's own: cuMemCreate memory, mapped at an address of its own with access
 * for some devices of this process. All functions need a context current. */
#ifndef SLR_CACHE_VIRTUAL_H
#define SLR_CACHE_VIRTUAL_H

#include <stdbool.h>
#include <stddef.h>
#include "base/real.h"

/* Where the memory is, and the devices that get access. */
struct slr_virtual_devices {
    CUdevice on;
    unsigned count;
    const CUdevice *device;
};

/* Bytes in which these devices can share memory; 0: they can not. */
size_t slr_virtual_granularity(const struct slr_virtual_devices *devices);

/* `bytes`: a multiple of the granularity. `shared`: other processes can be given it, by a file
 * descriptor. *out is 0 on failure. */
CUresult slr_virtual_make(const struct slr_virtual_devices *devices, size_t bytes, bool shared, CUdeviceptr *out);

/* The address is given back, too. The caller knows that nothing uses it. */
void slr_virtual_free(CUdeviceptr base, size_t bytes);

#endif
