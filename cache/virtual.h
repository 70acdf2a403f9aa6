/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory (cuMemCreate): slipring's own, and looks at the program's. All functions need a
 * context current. */
#ifndef SLR_CACHE_VIRTUAL_H
#define SLR_CACHE_VIRTUAL_H

#include <stdbool.h>
#include <stddef.h>
#include "base/real.h"

bool slr_virtual_supported(void); /* the driver has what is needed for it */

/* ---- slipring's own, at an address of its own, with access for some devices of the process ---- */

struct slr_virtual_devices {
    CUdevice on;    /* where the memory is */
    unsigned count; /* of devices that get access */
    const CUdevice *device;
};

/* Bytes in which these devices can share memory; 0: they can not. */
size_t slr_virtual_granularity(const struct slr_virtual_devices *devices);

/* `bytes`: a multiple of the granularity. *out is 0 on failure. */
CUresult slr_virtual_make(const struct slr_virtual_devices *devices, size_t bytes, CUdeviceptr *out);

/* The same of memory that there is, which the mapping keeps: also another process's; one piece behind the other. */
struct slr_virtual_piece {
    CUmemGenericAllocationHandle memory;
    size_t bytes;
};
CUresult slr_virtual_map(const struct slr_virtual_devices *devices, const struct slr_virtual_piece *piece,
                         unsigned count, CUdeviceptr *base);

/* Unmaps it, and gives the address back. The caller knows that nothing uses it. False: it stays mapped. */
bool slr_virtual_free(CUdeviceptr base, size_t bytes);

/* A handle that has been mapped, or is not going to be. */
void slr_virtual_release(CUmemGenericAllocationHandle memory);

/* ---- a look at the program's ----
 *
 * Between cuMemRetainAllocationHandle and cuMemRelease the program may unmap or release the same
 * allocation, which drivers do not stand: with 580.159 on an H200 that ends in a double free inside
 * the driver within seconds (tests/gpu/retain_race.c). Address queries are safe beside both.
 *
 *   slipring's look       slr_retain .. slr_retain_end         one at a time, and not beside
 *   the program's end     cuMemUnmap, cuMemRelease (hooked)    any number at a time
 *   the end of its own    slr_virtual_free, _release           likewise: where the program's memory was that is looked for,
 *                                                              what slipring has mapped for a peer may lie by then
 *
 * The program waits for a look, which waits for no device: at most about a millisecond. A look
 * tries for a few milliseconds, and is put off then, as the program may wait for its device. */
enum slr_retain_result {
    SLR_RETAINED,
    SLR_RETAIN_REFUSED, /* no memory of cuMemCreate is mapped there */
    SLR_RETAIN_LATER    /* something is being unmapped or released now */
};

/* SLR_RETAINED: *memory is the caller's until slr_retain_end, on the same thread and soon. */
enum slr_retain_result slr_retain(CUdeviceptr p, CUmemGenericAllocationHandle *memory);
void slr_retain_end(CUmemGenericAllocationHandle memory);

/* Around each cuMemUnmap and cuMemRelease but slr_retain_end's, or what retains and releases in the program's name; they
 * nest. */
void slr_retain_shut(void);
void slr_retain_open(void);

#endif
