/* SPDX-License-Identifier: Apache-2.0 */
/* One way to call the driver: run it, and at the first error log the call's name and CUDA's name of
 * the error. */
#ifndef SLR_BASE_CU_H
#define SLR_BASE_CU_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"

/* Logs at level error and returns SLR_CUDA (SLR_NOMEM for out of memory); SLR_OK for CUDA_SUCCESS.
 */
enum slr_status slr_cu_status(CUresult r, const char *call);

static inline enum slr_status slr_cu_check(CUresult r, const char *call)
{
    return r == CUDA_SUCCESS ? SLR_OK : slr_cu_status(r, call);
}

/* SLR_CU(cuEventRecord, ev, stream): calls slr_real.cuEventRecord and returns its status. */
#define SLR_CU(fn, ...) slr_cu_check(slr_real.fn(__VA_ARGS__), #fn)

/* SLR_TRY(expr): returns from the function with the status of `expr` unless it is SLR_OK. */
#define SLR_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        enum slr_status slr_try_ = (expr);                                                                             \
        if (slr_try_ != SLR_OK)                                                                                        \
            return slr_try_;                                                                                           \
    } while (0)

/* True when what is put on the stream is recorded in a graph. An error is an answer too: the legacy
 * stream is asked while another stream captures. */
static inline bool slr_stream_captures(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return slr_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* While any thread captures in the global mode, allocations, frees, looks at events and the like of
 * other threads fail and break the capture, unless the calling thread has said that it knows what
 * it does: with *mode CU_STREAM_CAPTURE_MODE_RELAXED, which becomes what it was before. */
static inline void slr_swap_capture_mode(CUstreamCaptureMode *mode)
{
    slr_real.cuThreadExchangeStreamCaptureMode(mode);
}

#endif
