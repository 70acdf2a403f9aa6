#include "plugin/gemm_seen.h"

#include <pthread.h>
#include "base/settings.h"

enum { DEVICES = 64 };

static struct {
    CUevent event; /* NULL: none yet */
    CUstream stream;
} last[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool on(void)
{
    return slr_get(SLR_S_TUNE_OVERLAP_CHANNELS) != 0 && slr_guard == 0 && slr_real.cuEventRecord != NULL;
}

static bool device(CUdevice *dev)
{
    return slr_real.cuCtxGetDevice(dev) == CUDA_SUCCESS && *dev >= 0 && *dev < DEVICES;
}

static bool captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return slr_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Somebody on this thread may be capturing another stream, in a mode that forbids looking at events; ours are not part
 * of that. */
static void swap_capture_mode(CUstreamCaptureMode *mode)
{
    slr_real.cuThreadExchangeStreamCaptureMode(mode);
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
    if (!device(&dev) || captured(stream))
        return;
    swap_capture_mode(&mode);
    pthread_mutex_lock(&lock);
    note_on(dev, stream);
    pthread_mutex_unlock(&lock);
    swap_capture_mode(&mode);
}

cublasStatus_t slr_gemm_seen_on(CUstream stream, cublasStatus_t result)
{
    if (result != CUBLAS_STATUS_SUCCESS || !on())
        return result;
    slr_guard++;
    note(stream);
    slr_guard--;
    return result;
}

cublasStatus_t slr_gemm_seen(cublasHandle_t handle, cublasStatus_t result)
{
    cudaStream_t stream;
    if (result != CUBLAS_STATUS_SUCCESS || !on() || !slr_real.cublasGetStream ||
        slr_real.cublasGetStream(handle, &stream) != CUBLAS_STATUS_SUCCESS)
        return result;
    return slr_gemm_seen_on((CUstream)stream, result);
}

bool slr_gemm_beside(CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdevice dev;
    bool beside = false;
    if (!slr_real.cuEventQuery || !device(&dev) || captured(stream))
        return false;
    swap_capture_mode(&mode);
    pthread_mutex_lock(&lock);
    if (last[dev].event && last[dev].stream != stream)
        beside = slr_real.cuEventQuery(last[dev].event) == CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&lock);
    swap_capture_mode(&mode);
    return beside;
}
