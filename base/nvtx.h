/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges for a tool that listens to NVTX (Nsight Systems and the like), in the domain "slipring".
 * They show the host's time in slipring; docs/profiling.md lists them. Payloads are bytes of all
 * ranks' shards, of a communicator its ranks. A range ends on the thread on which it began, and
 * ranges of one thread nest.
 *
 * A tool is attached when NVTX_INJECTION64_PATH is set; it is looked for when the first
 * communicator is made, so a process that makes none reads and loads nothing. Without a tool each
 * of these is one branch; a build without NVTX's headers has no ranges. */
#ifndef SLR_BASE_NVTX_H
#define SLR_BASE_NVTX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic bool slr_nvtx_attached; /* a tool is attached */

void slr_nvtx_open(void); /* looks for the tool, the first time */

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
