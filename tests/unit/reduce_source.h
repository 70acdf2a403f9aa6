/* SPDX-License-Identifier: Apache-2.0 */
/* The device for kernels/reduce.cu, on the host: what CUDA C gives it, one thread at a time. Threads of that code never
 * meet, so any order of them will do. */
#ifndef TESTS_UNIT_REDUCE_SOURCE_H
#define TESTS_UNIT_REDUCE_SOURCE_H

#include "kernels/reduce_args.h"
#include "softgpu/blas/float16.h"

#define KERNEL(name) static void name
#define PARAMETER const
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED
#define AS_IT_IS

typedef struct {
    unsigned x, y, z, w;
} __attribute__((aligned(16))) uint4;
static struct {
    unsigned x;
} blockIdx, threadIdx, blockDim, gridDim;

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return (uint4){x, y, z, w};
}

#define __ldcs(p) (*(p))
#define __uint_as_float f32_from_bits
#define __float_as_uint f32_bits
#define __fadd_rn(a, b) ((a) + (b))
#define __dmul_rn(a, b) ((a) * (b))
#define __double2float_rn(a) ((float)(a))

static inline unsigned two_f16(float low, float high)
{
    return f32_to_f16(low) | (unsigned)f32_to_f16(high) << 16;
}

static inline unsigned two_bf16(float low, float high)
{
    return f32_to_bf16(low) | (unsigned)f32_to_bf16(high) << 16;
}

#endif
