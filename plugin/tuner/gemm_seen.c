/* SPDX-License-Identifier: Apache-2.0 */
/* One event for each device, recorded again behind every GEMM: only the last one is asked about. */
#include "plugin/tuner/gemm_seen.h"

#include <pthread.h>
#include "base/cu.h"

/* Devices beyond that are not followed: no overlap is seen on them. */
enum { DEVICES = 64 };

/* A lock for each device: it is held over driver calls, which wait when the stream's queue is full,
 * and another device's thread may be the one that the stream waits for. */
static struct {
    pthread_mutex_t lock;
    CUevent event; /* NULL: none yet */
    CUstream stream;
} last[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* The current device. An event can be recorded only on a stream of its own context. */
static bool device(CUdevice *dev)
{
    return slr_real.cuCtxGetDevice(dev) == CUDA_SUCCESS && *dev >= 0 && *dev < DEVICES;
}

/* Under the lock. */
static void note_on(CUdevice dev, CUstream stream)
{
    if (!last[dev].event && slr_real.cuEventCreate(&last[dev].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    /* A context that was reset takes its events with it. */
    if (slr_real.cuEventRecord(last[dev].event, stream) != CUDA_SUCCESS)
        last[dev].event = NULL;
    last[dev].stream = stream;
}

static void note(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdevice dev;
    /* In a capture the event would become a node of the program's graph. */
    if (!device(&dev) || slr_stream_captures(stream))
        return;
    /* Events of slipring's own are allowed while the thread captures another stream. */
    slr_swap_capture_mode(&mode);
    pthread_mutex_lock(&last[dev].lock);
    note_on(dev, stream);
    pthread_mutex_unlock(&last[dev].lock);
    slr_swap_capture_mode(&mode);
}

void slr_gemm_note_on(CUstream stream)
{
    if (slr_guard != 0 || !slr_real.cuEventRecord)
        return;
    slr_guard++;
    note(stream);
    slr_guard--;
}

void slr_gemm_note(cublasHandle_t handle)
{
    cudaStream_t stream;
    if (slr_guard == 0 && slr_real.cublasGetStream &&
        slr_real.cublasGetStream(handle, &stream) == CUBLAS_STATUS_SUCCESS)
        slr_gemm_note_on((CUstream)stream);
}

bool slr_gemm_beside(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdevice dev;
    bool beside = false;
    if (!slr_real.cuEventQuery || !device(&dev) || slr_stream_captures(stream))
        return false;
    slr_swap_capture_mode(&mode);
    pthread_mutex_lock(&last[dev].lock);
    /* On one stream the gather waits for the GEMM, so they do not overlap. An error is no overlap:
     * then NCCL keeps its channels. */
    if (last[dev].event && last[dev].stream != stream)
        beside = slr_real.cuEventQuery(last[dev].event) == CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&last[dev].lock);
    slr_swap_capture_mode(&mode);
    return beside;
}
