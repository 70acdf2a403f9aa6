/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of reduce.cu take: one parameter, by value. Host and device lay it out alike. It
 * is also what softgpu/ knows of them, so a change here changes
 * softgpu/driver/device_reduce.c. */
#ifndef SLR_KERNELS_REDUCE_ARGS_H
#define SLR_KERNELS_REDUCE_ARGS_H

#include <stddef.h>

#define SLR_REDUCE_RANKS 64    /* SLR_MAX_RANKS */
#define SLR_REDUCE_THREADS 512 /* of a block: all that the kernels may be launched with */

struct slr_reduce_args {
    void *out, *also;                 /* the sum, and where it is written as well; NULL: nowhere */
    const void *in[SLR_REDUCE_RANKS]; /* the first n of them, in the order of the sum */
    size_t count;                     /* elements */
    double factor;                    /* 1 / divisor */
    int n;
};

#endif
