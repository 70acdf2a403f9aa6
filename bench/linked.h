/* SPDX-License-Identifier: Apache-2.0 */
/* What lt_parts and replicas share: they call slipring's own functions, with the vendors' libraries
 * that they are linked to behind them, and one device. */
#ifndef BENCH_LINKED_H
#define BENCH_LINKED_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/real.h"

/* Status 0 or the end, of any library. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_ != 0) {                                                                                            \
            fprintf(stderr, "%s: status %d\n", #call, status_);                                                        \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline CUresult linked_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static inline void use_linked_functions(void)
{
#define D(need, fn)
#define N(need, fn)
#define B(need, fn) slr_real.fn = fn;
#define T(need, fn) slr_real.fn = fn;
#include "base/real.def"
    slr_real.cuCtxGetDevice = linked_device;
}

static inline int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

#endif
