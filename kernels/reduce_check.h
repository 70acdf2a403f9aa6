/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of reduce.h once more, on the host: from the contributions, what the device has to have
 * written, bit by bit, and how far from it another way to add them may come. For SLIPRING_VERIFY.
 *
 * The bits follow from reduce.cu: fp32, from the left, an average by one product in fp64, rounded once
 * to nearest even. Of a NaN only that it is one.
 *
 * Another way may add in any order, in the type itself, each addition rounded; may multiply each
 * contribution by 1 / n, rounded to the type, for an average; and may leave the type's range on the
 * way. docs/numerics.md derives from that
 *
 *   |other - ours| <= 2 (n + 2) u S / divisor + (n + 2) s
 *
 * with S the sum of the contributions' magnitudes, u half a unit in the last place of 1, s the least
 * subnormal number. Where S stays below the type's range both are finite, or the same infinity, or
 * NaN; beyond that the other one may be an infinity or NaN where ours is not, and the reverse. */
#ifndef SLR_KERNELS_REDUCE_CHECK_H
#define SLR_KERNELS_REDUCE_CHECK_H

#include <stdint.h>
#include "kernels/reduce.h"
#include "kernels/reduce_args.h"

/* In host memory, aligned to the type. */
struct slr_sums {
    enum slr_reduce_type type;
    int n;
    float divisor;                    /* slr_reduce()'s */
    const void *in[SLR_REDUCE_RANKS]; /* the first n: contributions, in the order of the ranks */
    const void *ours, *other;         /* the device's sums; those that were made in another way */
    size_t count;
};

/* BITS: ours is not what the device has to write; else FAR: the other one is too far away. */
enum slr_sum_fault { SLR_SUM_RIGHT, SLR_SUM_BITS, SLR_SUM_FAR };

struct slr_sum_found {
    enum slr_sum_fault fault;
    size_t at;           /* element */
    uint32_t have, want; /* ours, and what it should be; FAR: and the other one */
};

/* The first element with a fault; SLR_SUM_RIGHT: there is none. The thread's own rounding and treatment
 * of subnormals do not matter, and stay. */
struct slr_sum_found slr_reduce_check(const struct slr_sums *s);

#endif
