/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM that reads all of a gathered buffer at once: a sum over the gathered dimension that is not
 * split (gemm_sum.h), as the gradient of a weight in 16 bits is. The gradient of the input, which can be
 * split, often reads the same buffer right behind it. On the application's stream the second would wait
 * with the first for the whole gather. So the first runs aside:
 *
 *   application's stream   ... asked         second GEMM in parts       wait for `apart`
 *   aside                  wait for `asked`, wait for the gather, first GEMM, record `apart`
 *
 * Who waits for what: `aside` for what stood on the stream at the call, and for what a join waits for
 * (slr_ring_join); the stream for `aside`, before anything but what touches none of the first GEMM's
 * memory (slr_gemms_apart) is put on it: plugin/pending/pending.h says when. Nothing else waits for
 * `aside`: neither other streams that hold the gather nor events that carry it, which the program may be
 * waiting for before it lets the stream go on. So each wait is for what was enqueued before it, and there
 * is no circle.
 *
 * Both may run at once, so they must not share a workspace: the first gets one of the ring's, which is as
 * large as the application's, so that cuBLAS chooses the same algorithm. A handle's stream and workspace
 * are changed for the call, which no other thread may see (slr_workspace_take).
 *
 * One caller at a time for one ring; the ring's context is current. */
#ifndef SLR_KERNELS_GEMM_ASIDE_H
#define SLR_KERNELS_GEMM_ASIDE_H

#include "kernels/gemm.h"

/* Enqueues the described GEMM, called on `stream`, aside. True: *result is what the application gets.
 * False: it was not enqueued, and may be as it is. */
bool slr_gemm_aside(struct slr_ring *ring, const struct slr_gemm *gemm, CUstream stream, cublasStatus_t *result);

/* Makes the stream wait for the latest one. */
enum slr_status slr_gemm_aside_join(struct slr_ring *ring, CUstream stream);

#endif
