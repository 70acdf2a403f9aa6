/* SPDX-License-Identifier: Apache-2.0 */
/* Names of streams. */
#include "plugin/comm/stream.h"

#include "base/real.h"

CUstream slr_stream_name(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_LEGACY)
        return NULL;
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

bool slr_stream_is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_PER_THREAD;
}

CUcontext slr_stream_context(CUstream stream)
{
    CUcontext ctx = NULL;
    /* The default streams exist in each context: such a handle means that of the current one. */
    CUresult r = slr_stream_is_default(stream) ? slr_real.cuCtxGetCurrent(&ctx)
                 : slr_real.cuStreamGetCtx     ? slr_real.cuStreamGetCtx(stream, &ctx)
                                               : CUDA_ERROR_NOT_FOUND;
    return r == CUDA_SUCCESS ? ctx : NULL;
}
