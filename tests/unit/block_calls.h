/* SPDX-License-Identifier: Apache-2.0 */
/* The block cache as its tests call it: what must succeed does. */
#ifndef TESTS_UNIT_BLOCK_CALLS_H
#define TESTS_UNIT_BLOCK_CALLS_H

#include <criterion/criterion.h>
#include "cache/blocks.h"
#include "fake_memory.h"

#define M ((size_t)1 << 20)

static inline CUdeviceptr take(size_t bytes)
{
    CUdeviceptr p = 0;
    CUresult r = slr_block_alloc(&p, bytes);
    cr_assert_eq(r, CUDA_SUCCESS, "%zu bytes: %d", bytes, (int)r);
    cr_assert_geq(fake_size_at(p), bytes);
    return p;
}

static inline void give(CUdeviceptr p)
{
    CUresult r = slr_block_free(p);
    cr_assert_eq(r, CUDA_SUCCESS, "%d", (int)r);
}

static inline struct slr_block_stats stats(void)
{
    struct slr_block_stats s;
    slr_block_stats(&s);
    return s;
}

#endif
