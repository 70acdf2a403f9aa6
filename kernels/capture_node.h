/* SPDX-License-Identifier: Apache-2.0 */
/* The node of a graph that a capturing stream's latest operation has become. */
#ifndef SLR_KERNELS_CAPTURE_NODE_H
#define SLR_KERNELS_CAPTURE_NODE_H

#include "base/real.h"

/* NULL: the stream captures nothing, or what it does next stands behind several nodes. The driver has
 * cuStreamGetCaptureInfo. */
static inline CUgraphNode slr_capture_node(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *node = NULL;
    size_t n = 0;
    if (slr_real.cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &node, NULL, &n) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
        return NULL;
    return node[0];
}

#endif
