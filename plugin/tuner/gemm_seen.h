/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a GEMM of the application still runs, for SLIPRING_TUNE_OVERLAP_CHANNELS: an event behind
 * the last one of each device. An event of our own, because the stream that it is on may be gone
 * when somebody asks. */
#ifndef SLR_PLUGIN_TUNER_GEMM_SEEN_H
#define SLR_PLUGIN_TUNER_GEMM_SEEN_H

#include <stdbool.h>
#include "base/real.h"
#include "base/settings.h"

/* A GEMM has been enqueued. Costs a few instructions while the setting is 0; else an event record.
 * Not while the stream is captured, and not from inside cuBLAS. The result is returned as it is. */
void slr_gemm_note(cublasHandle_t handle);
void slr_gemm_note_on(CUstream stream);

static inline bool slr_gemm_wanted(cublasStatus_t result)
{
    return __builtin_expect(slr_get(SLR_S_TUNE_OVERLAP_CHANNELS) != 0, 0) && slr_get(SLR_S_ENABLE) &&
           result == CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t slr_gemm_seen(cublasHandle_t handle, cublasStatus_t result)
{
    if (slr_gemm_wanted(result))
        slr_gemm_note(handle);
    return result;
}

static inline cublasStatus_t slr_gemm_seen_on(CUstream stream, cublasStatus_t result)
{
    if (slr_gemm_wanted(result))
        slr_gemm_note_on(stream);
    return result;
}

/* True when the last GEMM on the current device is on another stream than this and is not over. */
bool slr_gemm_beside(CUstream stream);

#endif
