/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes of slipring's own functions, and calls of the driver that give one: the function that
 * first sees an error logs it, callers only pass it on. And the reasons of decisions. */
#ifndef SLR_BASE_STATUS_H
#define SLR_BASE_STATUS_H

#include <stdbool.h>
#include "base/real.h"

/* X(id, "name", NCCL's result that an application sees): done; host or device memory could not be
 * allocated; a call of the driver failed; another rank died, aborted or refused; it did not answer
 * in time; a function or facility is not there. */
#define SLR_STATUSES(X)                                                                                                \
    X(OK, "ok", ncclSuccess)                                                                                           \
    X(NOMEM, "out_of_memory", ncclSystemError)                                                                         \
    X(CUDA, "cuda_error", ncclUnhandledCudaError)                                                                      \
    X(PEER, "peer_failed", ncclRemoteError)                                                                            \
    X(TIMEOUT, "timeout", ncclRemoteError)                                                                             \
    X(ABSENT, "absent", ncclInternalError)

enum slr_status {
#define X(id, name, nccl) SLR_##id,
    SLR_STATUSES(X)
#undef X
        SLR_STATUS_COUNT
};

const char *slr_status_name(enum slr_status s);

/* Reasons: the one vocabulary in which decisions are logged, counted and tested. The table is
 * reasons.def. */
enum slr_reason {
#define X(id, ...) SLR_R_##id,
#include "base/reasons.def"
#undef X
    SLR_R_COUNT
};

const char *slr_reason_name(enum slr_reason r);
const char *slr_reason_doc(enum slr_reason r);

const char *slr_reason_cure(enum slr_reason r); /* what to do about it; NULL: nothing that would help */

/* Of those that say what became of a call: slipring has moved it. */
static inline bool slr_reason_moves(enum slr_reason r)
{
    return r == SLR_R_RING || r == SLR_R_GRAPH || r == SLR_R_HOSTS;
}

/* Logs the call's name and CUDA's name of the error; SLR_CUDA, or SLR_NOMEM for out of memory;
 * SLR_OK for CUDA_SUCCESS. */
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

/* True when what is put on the stream is captured into a graph. An error is an answer too: the legacy
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
