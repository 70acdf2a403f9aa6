/* SPDX-License-Identifier: Apache-2.0 */
/* The application's streams: one name for each, and what the driver tells of them. */
#ifndef SLR_PLUGIN_COMM_STREAM_H
#define SLR_PLUGIN_COMM_STREAM_H

#include <stdbool.h>
#include "base/real.h"

/* One name for each stream: NULL for the legacy default stream, CU_STREAM_PER_THREAD for the
 * thread's. `per_thread`: a NULL stream means the latter, as with the _ptsz and _ptds entry
 * points. */
static inline CUstream slr_stream_name(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_LEGACY)
        return NULL;
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

static inline bool slr_stream_is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_PER_THREAD;
}

/* What the driver tells of a stream that is no default stream: asked once, as it does not change. */
struct slr_stream_facts {
    CUcontext ctx; /* that it belongs to; NULL: it can not be told */
    bool blocking; /* it synchronises with the legacy default stream; also when that can not be told */
};

/* Both call the driver: without the table lock. */
struct slr_stream_facts slr_stream_facts(CUstream stream);

/* The default streams exist in each context: such a handle means that of the current one. */
CUcontext slr_stream_context(CUstream stream);

/* A stream, or a context with its streams, is about to be destroyed: others may get the handles. */
void slr_stream_ends(void);

#endif
