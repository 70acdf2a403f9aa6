/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of CUDA, as programs of different kinds reach them (enum by). The same calls by the runtime, compiled twice, and
 * in the library fuzz_bound by the driver. */
#ifndef TESTS_FUZZ_WAYS_H
#define TESTS_FUZZ_WAYS_H

#include <cuda_runtime_api.h>

struct way {
    cudaError_t (*copy)(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
    cudaError_t (*set)(void *to, int value, size_t bytes, cudaStream_t stream);
    cudaError_t (*record)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*wait)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*call)(cudaStream_t stream, void (*function)(void *), void *data);
    cudaError_t (*query_event)(cudaEvent_t event);
    cudaError_t (*query)(cudaStream_t stream);
    cudaError_t (*sync_event)(cudaEvent_t event);
    cudaError_t (*sync)(cudaStream_t stream);
    cudaError_t (*sync_device)(void);
    cudaError_t (*allocate)(void **at, size_t bytes);
    cudaError_t (*release)(void *at);
};

extern const struct way way_runtime, way_ptsz;
/* In the library: `way_bound`. */

#endif
