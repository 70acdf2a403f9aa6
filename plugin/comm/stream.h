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

/* The context that a stream belongs to, NULL when it can not be told. The default streams exist in
 * each context: such a handle means that of the current one. Calls the driver: without the table
 * lock. */
static inline CUcontext slr_stream_context(CUstream stream)
{
    CUcontext ctx = NULL;
    CUresult r = slr_stream_is_default(stream) ? slr_real.cuCtxGetCurrent(&ctx)
                 : slr_real.cuStreamGetCtx     ? slr_real.cuStreamGetCtx(stream, &ctx)
                                               : CUDA_ERROR_NOT_FOUND;
    return r == CUDA_SUCCESS ? ctx : NULL;
}

#endif
