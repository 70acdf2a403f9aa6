/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that others than this process's streams may reach, as the program has given it away: exported to other
 * processes (cuIpcGetMemHandle, cuMemExportToShareableHandle), or registered as a window of NCCL's. Who has it may learn
 * by ways of its own that this process has come to some point, and then use it.
 *
 * Ranges are kept whole allocations, and for good: memory that is freed and comes again at the same address counts as
 * given. Of virtual memory it is not told which: then all counts. What slipring and NCCL export for themselves does not
 * count, but for cuIpcGetMemHandle, of which it does not matter.
 *
 * Thread-safe; looks take no lock. */
#ifndef SLR_CACHE_GIVEN_H
#define SLR_CACHE_GIVEN_H

#include <stdbool.h>
#include <stddef.h>
#include "base/real.h"

/* Before the handle is there: the allocation at `p`. The guard is up. */
void slr_memory_gives(CUdeviceptr p);
void slr_memory_gives_range(CUdeviceptr p, size_t bytes);
void slr_memory_gives_all(void);

bool slr_memory_given(CUdeviceptr p, size_t bytes);

#endif
