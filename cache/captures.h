/* SPDX-License-Identifier: Apache-2.0 */
/* Beside captures of the application: what the block cache may do while a stream captures into a
 * graph. blocks.h has the rule, and slr_block_captures, by which the hooks announce captures.
 * Thread-safe. */
#ifndef SLR_CACHE_CAPTURES_H
#define SLR_CACHE_CAPTURES_H

#include <stdbool.h>
#include "base/cu.h"

/* A stream of the application captures, or is about to. */
bool slr_block_capturing(void);

/* No stream of the process captures, nor can one that slipring does not know of. */
bool slr_nothing_captures(void);

/* From now on streams may capture without slipring's knowing. */
void slr_captures_unseen(void);

/* slr_stream_captures() without a call of the driver where nothing captures. */
static inline bool slr_stream_may_capture(CUstream stream)
{
    return !slr_nothing_captures() && slr_stream_captures(stream);
}

/* A capture (by the driver's id, never 0) into a graph of the program's has begun, or ended: the graph may have nodes
 * already, or be the body of a conditional node. */
void slr_capture_given(unsigned long long capture);
void slr_capture_given_ends(unsigned long long capture);
bool slr_capture_is_given(unsigned long long capture);

/* Waits for all work of the current context, with the driver's answer in *r. False: not done,
 * because something captures. */
bool slr_block_synchronise(CUresult *r);

/* The driver's cuMemFree on slipring's own account, which no capture forbids. */
CUresult slr_block_driver_free(CUdeviceptr p);

#endif
