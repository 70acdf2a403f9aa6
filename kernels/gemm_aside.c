/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"

#include "base/status.h"
#include "kernels/gemm_lt.h"
#include "kernels/ring.h"

static size_t extent_bytes(struct slr_extent x)
{
    return x.end - x.begin;
}

static struct slr_extent workspace_of(const struct slr_gemm *gemm)
{
    const struct slr_lt *lt = gemm->lt;
    if (!lt)
        return slr_workspace_of(gemm->handle);
    return (struct slr_extent){(uintptr_t)lt->workspace,
                               (uintptr_t)lt->workspace + (lt->workspace ? lt->workspace_bytes : 0)};
}

/* Once: what could not be had is not asked for again. */
static bool has_objects(struct slr_ring *ring)
{
    if (ring->aside)
        return ring->apart;
    return SLR_CU(cuStreamCreateWithPriority, &ring->aside, CU_STREAM_NON_BLOCKING, 0) == SLR_OK &&
           SLR_CU(cuEventCreate, &ring->asked, CU_EVENT_DISABLE_TIMING) == SLR_OK &&
           SLR_CU(cuEventCreate, &ring->apart, CU_EVENT_DISABLE_TIMING) == SLR_OK;
}

/* So much at least. In the stream's order, so that giving it back does not wait for the device, which may wait for a
 * peer. */
static bool has_scratch(struct slr_ring *ring, size_t bytes)
{
    if (bytes <= ring->scratch_bytes)
        return !bytes || ring->scratch;
    if (ring->scratch)
        SLR_CU(cuMemFreeAsync, ring->scratch, ring->aside);
    ring->scratch_bytes = bytes;
    if (!slr_real.cuMemAllocAsync || !slr_real.cuMemFreeAsync ||
        slr_real.cuMemAllocAsync(&ring->scratch, bytes, ring->aside) != CUDA_SUCCESS)
        ring->scratch = 0;
    return ring->scratch;
}

static enum slr_status stand_behind(struct slr_ring *ring, CUstream stream)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->asked, stream));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->aside, ring->asked, 0));
    return slr_ring_join(ring, ring->aside);
}

static cublasStatus_t set_handle(cublasHandle_t handle, CUstream stream, uintptr_t workspace, size_t bytes)
{
    const cublasStatus_t r = slr_real.cublasSetStream_v2(handle, (cudaStream_t)stream);
    return r == CUBLAS_STATUS_SUCCESS ? slr_real.cublasSetWorkspace_v2(handle, (void *)workspace, bytes) : r;
}

/* False: it was not enqueued. Of a handle without a workspace of the program's it is not known how large cuBLAS's own
 * one is. */
static bool call_handle(const struct slr_ring *ring, const struct slr_gemm *gemm, cublasStatus_t *result)
{
    const struct slr_extent given = slr_workspace_of(gemm->handle);
    cudaStream_t stream;
    if (!slr_real.cublasSetStream_v2 || !slr_real.cublasSetWorkspace_v2 || !extent_bytes(given) ||
        slr_real.cublasGetStream(gemm->handle, &stream) != CUBLAS_STATUS_SUCCESS || !slr_workspace_take(gemm->handle))
        return false;
    *result = set_handle(gemm->handle, ring->aside, ring->scratch, extent_bytes(given));
    if (*result == CUBLAS_STATUS_SUCCESS)
        *result = slr_gemm_whole(gemm);
    const bool enqueued = *result == CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t back = set_handle(gemm->handle, (CUstream)stream, given.begin, extent_bytes(given));
    slr_workspace_return(gemm->handle);
    if (!enqueued && back == CUBLAS_STATUS_SUCCESS)
        return false;
    *result = back; /* with the handle as it is now nothing must be called here */
    return true;
}

static bool call_lt(const struct slr_ring *ring, const struct slr_gemm *gemm, cublasStatus_t *result)
{
    struct slr_gemm aside = *gemm;
    struct slr_lt lt = *gemm->lt;
    aside.lt = &lt;
    lt.stream = (cudaStream_t)ring->aside;
    lt.workspace = lt.workspace ? (void *)(uintptr_t)ring->scratch : NULL;
    *result = slr_gemm_whole(&aside);
    return *result == CUBLAS_STATUS_SUCCESS;
}

bool slr_gemm_aside(struct slr_ring *ring, const struct slr_gemm *gemm, CUstream stream, cublasStatus_t *result)
{
    if (!has_objects(ring) || !has_scratch(ring, extent_bytes(workspace_of(gemm))) ||
        stand_behind(ring, stream) != SLR_OK)
        return false;
    if (!(gemm->lt ? call_lt : call_handle)(ring, gemm, result))
        return false;
    if (SLR_CU(cuEventRecord, ring->apart, ring->aside) != SLR_OK)
        *result = CUBLAS_STATUS_EXECUTION_FAILED;
    return true;
}

enum slr_status slr_gemm_aside_join(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWaitEvent, stream, ring->apart, 0);
}
