/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges for a tool that listens to NVTX (Nsight Systems and the like), in the domain "slipring":
 *
 *   name                    what                                               payload
 *   communicator NAME       the agreement of a new communicator                its ranks
 *   all-gather ring         a gather that is moved to the ring                 gathered bytes
 *   all-gather pass: REASON a gather that goes to NCCL                         gathered bytes
 *   fused GEMM FORM         the parts of a fused GEMM are enqueued             gathered bytes
 *   join: REASON            a stream is made to wait for a gather in flight    gathered bytes
 *   verify                  a call's result is compared with NCCL's            compared bytes
 *
 * Gathered bytes are those of all ranks' shards together.
 *
 * They show the host's time in slipring; what the GPU does meanwhile the tool shows by itself. A
 * range ends on the thread on which it began, and ranges of one thread nest.
 *
 * A tool is attached when NVTX_INJECTION64_PATH is set; it is looked for when the first
 * communicator is made, so a process that makes none reads and loads nothing. Without a tool each
 * of these is one branch. A build without NVTX's headers has no ranges.
 */
#ifndef SLR_BASE_NVTX_H
#define SLR_BASE_NVTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic bool slr_nvtx_attached; /* a tool is attached */

/* Looks for the tool, the first time. */
void slr_nvtx_open(void);

void slr_nvtx_push(const char *what, const char *detail, uint64_t payload);
void slr_nvtx_pop(void);

static inline bool slr_nvtx_on(void)
{
    return __builtin_expect(atomic_load_explicit(&slr_nvtx_attached, memory_order_relaxed), 0);
}

/* A range called "WHAT DETAIL" begins. True: it did, and slr_nvtx_end(true) ends it. */
static inline bool slr_nvtx_begin(const char *what, const char *detail, uint64_t payload)
{
    if (!slr_nvtx_on())
        return false;
    slr_nvtx_push(what, detail, payload);
    return true;
}

static inline void slr_nvtx_end(bool begun)
{
    if (__builtin_expect(begun, 0))
        slr_nvtx_pop();
}

#endif
