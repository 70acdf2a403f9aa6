/* SPDX-License-Identifier: Apache-2.0 */
/* Beside captures of the application: what the block cache may do while a stream captures into a
 * graph. blocks.h has the rule, and slr_block_captures, by which the hooks announce captures.
 * Thread-safe. */
#ifndef SLR_CACHE_CAPTURES_H
#define SLR_CACHE_CAPTURES_H

#include <stdbool.h>
#include "base/real.h"

/* A stream of the application captures, or is about to. */
bool slr_block_capturing(void);

/* Waits for all work of the current context, with the driver's answer in *r. False: not done,
 * because something captures. */
bool slr_block_synchronise(CUresult *r);

/* The driver's cuMemFree on slipring's own account, which no capture forbids. */
CUresult slr_block_driver_free(CUdeviceptr p);

#endif
