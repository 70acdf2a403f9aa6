/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the block cache did not make, entered among its blocks so that gathers can use it
 * where it lies.
 *
 *   SLR_BLOCK_REGISTERED   plain cuMemAlloc memory, made before or without the cache, or too small
 *                          for it. Known from its registration with NCCL until the last one ends.
 *   SLR_BLOCK_VIRTUAL      a mapping of cuMemMap whose memory can be shared by a file descriptor.
 *                          Known from its registration, or the first gather that meets it, until
 *                          it is unmapped.
 *
 * Each is one allocation of the driver, as cuMemGetAddressRange tells; a buffer that goes beyond it
 * is not entered. It gets a generation of its own like every block.
 *
 * What this relies on was seen on an H200 with driver 580: cuMemGetAddressRange tells the one
 * mapping and not the reservation; memory of pools and managed memory refuse
 * cuMemRetainAllocationHandle, plain memory as well; it works after the application has released
 * its own handle; a small cuMemAlloc that shares a page with others is opened by itself.
 *
 * Life. Registered memory is the application's: when it frees it while peers may have it open,
 * cuMemFree is the cache's (with SLIPRING_ALLOC=off it is not; then only the end of the
 * registration waits for the peers). A virtual mapping goes when the application says so. Other
 * processes that have mapped its memory keep the memory, not the address; so the generation has to
 * end before the address can mean other memory, and no block may be entered that ended meanwhile:
 *
 *   unmapping                                       entering
 *   1  count, list the range, end the generations   1  read the count
 *      in it
 *   2  the driver's cuMemUnmap                      2  ask the driver what is there
 *   3  count, take the range off the list           3  enter, unless the count has changed, or the
 *                                                      memory is in a range of the list
 *
 * Whoever asks before 2 ends is counted out, or kept out by the list. Nothing is ended in 3: by
 * then the address may be another buffer's, which has been mapped and entered by another thread.
 * cuMemRelease and cuMemAddressFree need nothing: the mapping keeps the memory, and an address
 * range can only be freed when nothing is mapped there. ncclMemFree goes through cuMemUnmap.
 */
#ifndef SLR_CACHE_EXTERNAL_H
#define SLR_CACHE_EXTERNAL_H

#include "cache/blocks.h"

/* Ordinals of entered blocks count by themselves: when a gather meets memory must not change those
 * of allocations. */
#define SLR_ORDINAL_EXTERNAL 0x80000000u

/* The block of a buffer that is being registered: found, or entered when it can be. With the
 * device's primary context current. Waits, at most a second, while the program is unmapping memory. False:
 * it stays unknown, and the log says why, once for each reason. slr_external_release ends the hold; there
 * may be several on one block. */
bool slr_external_hold(CUdeviceptr p, size_t bytes, struct slr_place *out);
bool slr_external_hold_again(uint64_t generation);
void slr_external_release(uint64_t generation);

/* The same for a buffer that a gather has met, without a hold: virtual memory only. */
bool slr_external_enter(CUdeviceptr p, size_t bytes, struct slr_place *out);

/* Around the driver's cuMemUnmap, or what calls it; they nest. */
void slr_external_unmap_begin(CUdeviceptr p, size_t bytes);
void slr_external_unmap_end(CUdeviceptr p, size_t bytes);

/* The application may free the memory as soon as its registration has ended, and no hook holds it
 * up. */
bool slr_external_ends_with_registration(uint64_t generation);

/* The driver has what virtual memory needs. */
bool slr_virtual_supported(void);

/* One line "not_shared" for each reason. */
void slr_not_shared(const char *why);

#endif
