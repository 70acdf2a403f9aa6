/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/given.h"

#include <pthread.h>
#include <stdint.h>

enum { RANGES = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static struct {
    uintptr_t begin, end;
} range[RANGES]; /* the first `ranges` do not change any more */
static _Atomic unsigned ranges;
static _Atomic bool all;

void slr_memory_gives_all(void)
{
    atomic_store(&all, true);
}

void slr_memory_gives_range(CUdeviceptr p, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)p;
    pthread_mutex_lock(&lock);
    const unsigned n = atomic_load(&ranges);
    bool known = false;
    for (unsigned i = 0; i < n && !known; i++)
        known = range[i].begin <= begin && begin + bytes <= range[i].end;
    if (!known && n == RANGES)
        slr_memory_gives_all();
    if (!known && n < RANGES) {
        range[n].begin = begin;
        range[n].end = begin + bytes;
        atomic_store(&ranges, n + 1);
    }
    pthread_mutex_unlock(&lock);
}

void slr_memory_gives(CUdeviceptr p)
{
    CUdeviceptr base;
    size_t size;
    if (slr_real.cuMemGetAddressRange && slr_real.cuMemGetAddressRange(&base, &size, p) == CUDA_SUCCESS)
        slr_memory_gives_range(base, size);
    else
        slr_memory_gives_all();
}

bool slr_memory_given(CUdeviceptr p, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)p;
    bool given = atomic_load(&all);
    for (unsigned i = 0; i < atomic_load(&ranges) && !given; i++)
        given = range[i].begin < begin + bytes && begin < range[i].end;
    return given;
}
