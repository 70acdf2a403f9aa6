/* SPDX-License-Identifier: Apache-2.0 */
/* Adds contributions of several ranks on the device, with few multiprocessors:
 *
 *   out[i] = round((in[0][i] + in[1][i] + ... + in[n - 1][i]) / divisor)
 *
 * The sum is taken in fp32, from the left, and rounded once, to nearest even: the same bits in every
 * run, for any number of blocks and any alignment. Subnormal numbers, infinities and NaN come out as
 * IEEE additions give them; which NaN is the device's choice.
 *
 * The device code is reduce.cu. Its PTX (reduce.ptx, for sm_80 and later) is part of the library; the
 * driver compiles it, or takes it from its cache, when it is loaded. */
#ifndef SLR_KERNELS_REDUCE_H
#define SLR_KERNELS_REDUCE_H

#include <stddef.h>
#include "base/real.h"
#include "base/status.h"

enum slr_reduce_type { SLR_REDUCE_BF16, SLR_REDUCE_F16, SLR_REDUCE_F32, SLR_REDUCE_TYPES };

/* What blocks == 0 stands for. */
#define SLR_REDUCE_BLOCKS 16

/* The kernels in one context. All zero: not loaded. It is the caller's, who keeps one for each
 * context, and lets one thread at a time load or unload it. slr_reduce() may be called by several at
 * once. It ends with its context: of one that was destroyed or reset only the memory is left, to be
 * set to zero. */
struct slr_reduce {
    CUmodule module;
    CUfunction function[SLR_REDUCE_TYPES];
};

/* Loads the kernels into the current context; does nothing when they are loaded. Afterwards no launch
 * loads anything.
 *
 * Loading may wait for everything that the context's device has been given, and does so for work of
 * any stream. So it is called when nothing that this process has enqueued waits for a peer: before
 * the first piece of a protocol, as at connection. The first time on a machine it takes long enough to
 * compile (tenths of a second). While other threads capture it breaks no capture.
 *
 * SLR_ABSENT: the driver lacks a function (not logged). SLR_CUDA, SLR_NOMEM: the driver could not load
 * the code, say because it is told not to compile PTX (CUDA_DISABLE_PTX_JIT) or the device is older
 * than sm_80. After an error *r is all zero. */
enum slr_status slr_reduce_load(struct slr_reduce *r);

/* The other way round, in the context of slr_reduce_load(). May wait for the device, as that does.
 * Nothing when not loaded. Executable graphs that hold a launch must be gone. */
void slr_reduce_unload(struct slr_reduce *r);

/* Enqueues the sum of `n` contributions of `count` elements (>= 0) on a stream of the context, which is
 * current. Works in a capture: the launch becomes a kernel node.
 *
 * in       n device addresses, read before the call returns; 1 <= n <= SLR_MAX_RANKS. They and `out`
 *          are aligned to the type. 16-byte accesses need all of them to lie alike with respect to
 *          16 bytes: otherwise the sum is as right, and slower
 * out      `count` elements, not overlapping an input, or exactly one or several of them
 * divisor  1 for a sum, n for an average: one division in fp32 after the sum
 * blocks   of 512 threads, at most that many run at a time; 0: SLR_REDUCE_BLOCKS
 *
 * The stream orders it like any kernel: inputs are read, and `out` is written, after all that the
 * stream had before. Memory of other devices needs peer access, or to be mapped for this device.
 *
 * SLR_ABSENT: not loaded, or a type or n that there is no kernel for (not logged). SLR_CUDA: the launch
 * failed. */
enum slr_status slr_reduce(const struct slr_reduce *r, CUstream stream, enum slr_reduce_type type, void *out,
                           const void *const in[], int n, size_t count, float divisor, unsigned blocks);

#endif
