/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled a second time with WAY=way_ptsz and CUDA_API_PER_THREAD_DEFAULT_STREAM, which gives each function its
 * _ptsz or _ptds form. */
#include "ways.h"

#ifndef WAY
#define WAY way_runtime
#endif

const struct way WAY = {.copy = cudaMemcpyAsync,
                        .set = cudaMemsetAsync,
                        .record = cudaEventRecord,
                        .wait = cudaStreamWaitEvent,
                        .call = cudaLaunchHostFunc,
                        .query_event = cudaEventQuery,
                        .query = cudaStreamQuery,
                        .sync_event = cudaEventSynchronize,
                        .sync = cudaStreamSynchronize,
                        .sync_device = cudaDeviceSynchronize,
                        .allocate = cudaMalloc,
                        .release = cudaFree};
