/* SPDX-License-Identifier: Apache-2.0 */
/* A driver with device memory only, for the tests of the block cache: counts bytes, checks every address, fails when
 * told. Blocks are given the lowest free address, so addresses come back as they do on a real device. */
#ifndef TESTS_UNIT_FAKE_MEMORY_H
#define TESTS_UNIT_FAKE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include "base/real.h"

struct fake_memory {
    size_t capacity, used, peak; /* of each device; used and peak of all together */
    int allocs, frees, syncs;    /* calls */
    int fail_alloc;              /* the n-th cuMemAlloc from now fails; 0: none */
    int fail_calloc;             /* likewise of the cache's own memory */
    int fail_realloc;
    int streams, events;   /* that live */
    CUresult event_result; /* of a look at any event */
    bool captures;         /* every stream does */
    CUresult sync_result, free_result, async_result;
    void (*on_sync)(void);  /* called in cuCtxSynchronize */
    void (*on_query)(void); /* at a look at an event */
    bool global_capture;    /* cuMemAlloc and cuMemFree fail, except in threads in the relaxed mode */
    CUcontext current;
    int active; /* the primary contexts exist */
};
extern struct fake_memory fake;

/* Those on which memory can be freed and events recorded. */
extern const CUstream fake_stream, fake_side;

/* The primary context of a device, and one that is not. */
CUcontext fake_primary(int device);
CUcontext fake_other(int device);

/* Fills slr_real, sets SLIPRING_ALLOC and SLIPRING_ALLOC_BYTES; device 0 of `capacity` bytes is current. */
void fake_start(const char *mode, const char *budget, size_t capacity);

/* Bytes of the live allocation at `p`, 0: none. */
size_t fake_size_at(CUdeviceptr p);

/* Makes everything that lives disappear, as a device's reset does. */
void fake_reset(void);

#endif
