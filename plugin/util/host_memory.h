/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the device uses, where it has none of its own left. With the guard up. */
#ifndef SLR_PLUGIN_UTIL_HOST_MEMORY_H
#define SLR_PLUGIN_UTIL_HOST_MEMORY_H

#include <stddef.h>
#include "base/real.h"
#include "base/status.h"

/* *at: as the current context, and all others, see it. On failure nothing is left. */
enum slr_status slr_host_memory(void **host, CUdeviceptr *at, size_t bytes);

/* Nothing uses it any more. */
void slr_host_memory_free(void *host);

#endif
