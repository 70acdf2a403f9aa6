/* SPDX-License-Identifier: Apache-2.0 */
/* Beside captures of the application: what may be done while a stream captures into a graph
 * (docs/memory.md, Captures). The hooks announce captures by slr_block_captures (blocks.h).
 * Thread-safe. */
#ifndef SLR_CACHE_CAPTURES_H
#define SLR_CACHE_CAPTURES_H

#include <stdbool.h>
#include "base/status.h"

bool slr_block_capturing(void); /* a stream of the application captures, or is about to */

bool slr_nothing_captures(void); /* no stream of the process captures, nor can one that slipring does not know of */

void slr_captures_unseen(void); /* from now on streams may capture without slipring's knowing */

/* slr_stream_captures() without a call of the driver where nothing captures. */
static inline bool slr_stream_may_capture(CUstream stream)
{
    return !slr_nothing_captures() && slr_stream_captures(stream);
}

/* A capture (by the driver's id, never 0) into a graph of the program's has begun, or ended: the
 * graph may have nodes already, or be the body of a conditional node. */
void slr_capture_given(unsigned long long capture);
void slr_capture_given_ends(unsigned long long capture);
bool slr_capture_is_given(unsigned long long capture);

/* Waits for all work of the current context, with the driver's answer in *r. False: not done, as
 * something captures. */
bool slr_block_synchronise(CUresult *r);

/* The driver's cuMemFree on slipring's own account, which no capture forbids. */
CUresult slr_block_driver_free(CUdeviceptr p);

#endif
