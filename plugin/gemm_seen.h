/* Whether a GEMM of the application still runs, for SLIPRING_TUNE_OVERLAP_CHANNELS: an event behind the last one of
 * each device. An event of our own, because the stream that it is on may be gone when somebody asks. */
#ifndef SLR_PLUGIN_GEMM_SEEN_H
#define SLR_PLUGIN_GEMM_SEEN_H

#include <stdbool.h>
#include "base/real.h"

/* A GEMM has been enqueued. Costs a few instructions while the setting is 0; else an event record. Not while the stream
 * is captured, and not from inside cuBLAS. The result is returned as it is. */
cublasStatus_t slr_gemm_seen(cublasHandle_t handle, cublasStatus_t result);
cublasStatus_t slr_gemm_seen_on(CUstream stream, cublasStatus_t result);

/* True when the last GEMM on the current device is on another stream than this and is not over. */
bool slr_gemm_beside(CUstream stream);

#endif
