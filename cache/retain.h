/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at an allocation of the program's virtual memory through its address.
 *
 * cuMemRetainAllocationHandle gives a handle of the memory that is mapped at an address, and
 * cuMemRelease gives it back. Between the two the program may unmap or release the same allocation
 * on another thread. Drivers do not stand that: with driver 580.159 on an H200 a thread that
 * retains and releases beside another one's cuMemUnmap or cuMemRelease of the same allocation ends
 * in a double free inside the driver within seconds (tests/gpu/retain_race.c), and PyTorch unmaps
 * its expandable segments at any time. Address queries are safe beside both.
 *
 *   slipring's look       slr_retain .. slr_retain_end         one at a time, and not beside
 *   the program's end     cuMemUnmap, cuMemRelease (hooked)    any number at a time
 *
 * The program waits for a look, which makes no call that waits for a device: microseconds to a
 * millisecond. A look does not wait for the program, whose call may wait for its device in the
 * driver: it tries for a few milliseconds, and is put off then. So neither keeps another rank's
 * thread from anything for long.
 */
#ifndef SLR_CACHE_RETAIN_H
#define SLR_CACHE_RETAIN_H

#include "base/real.h"

enum slr_retain_result {
    SLR_RETAINED,
    SLR_RETAIN_REFUSED, /* no memory of cuMemCreate is mapped there */
    SLR_RETAIN_LATER    /* the program is unmapping or releasing something now */
};

/* SLR_RETAINED: *memory is the caller's until slr_retain_end, on the same thread and soon. */
enum slr_retain_result slr_retain(CUdeviceptr p, CUmemGenericAllocationHandle *memory);
void slr_retain_end(CUmemGenericAllocationHandle memory);

/* Around the driver's cuMemUnmap and cuMemRelease as the program calls them, or what retains and releases in
 * its name; they nest. */
void slr_retain_program_begin(void);
void slr_retain_program_end(void);

#endif
