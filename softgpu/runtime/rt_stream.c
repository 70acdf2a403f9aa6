/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and host functions. */
#include "rt.h"

#include <stdlib.h>

RT_PLAIN(cudaStreamCreate, (cudaStream_t * stream), StreamCreate, stream, CU_STREAM_DEFAULT)
RT_PLAIN(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags), StreamCreate, stream, flags)
RT_PLAIN(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
         StreamCreateWithPriority, stream, flags, priority)
RT_PLAIN(cudaStreamDestroy, (cudaStream_t stream), StreamDestroy, stream)

RT_STREAM(cudaStreamSynchronize, ptsz, (cudaStream_t stream), StreamSynchronize, stream)
RT_STREAM(cudaStreamQuery, ptsz, (cudaStream_t stream), StreamQuery, stream)
RT_STREAM(cudaStreamWaitEvent, ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned int flags), StreamWaitEvent,
          stream, event, flags)
RT_STREAM(cudaStreamGetPriority, ptsz, (cudaStream_t stream, int *priority), StreamGetPriority, stream, priority)
RT_STREAM(cudaStreamGetFlags, ptsz, (cudaStream_t stream, unsigned int *flags), StreamGetFlags, stream, flags)
RT_STREAM(cudaStreamGetId, ptsz, (cudaStream_t stream, unsigned long long *id), StreamGetId, stream, id)
RT_STREAM(cudaStreamGetDevice, ptsz, (cudaStream_t stream, int *device), StreamGetDevice, stream, device)
RT_STREAM(cudaLaunchHostFunc, ptsz, (cudaStream_t stream, cudaHostFn_t function, void *data), LaunchHostFunc, stream,
          function, data)

/* The runtime's callback takes a cudaError_t where the driver's takes a CUresult. */
struct callback {
    cudaStreamCallback_t function;
    void *data;
};

static void CUDA_CB run_callback(CUstream stream, CUresult status, void *data)
{
    const struct callback callback = *(struct callback *)data;
    free(data);
    callback.function(stream, rt_map(status), callback.data);
}

static cudaError_t add_callback(const struct rt_stream_fns *fns, cudaStream_t stream, cudaStreamCallback_t function,
                                void *data, unsigned int flags)
{
    if (!function)
        return rt_fail(cudaErrorInvalidValue);
    struct callback *callback = malloc(sizeof(*callback));
    if (!callback)
        return rt_fail(cudaErrorMemoryAllocation);
    *callback = (struct callback){function, data};
    const CUresult result = RT_DRIVER(fns->StreamAddCallback, stream, run_callback, callback, flags);
    if (result != CUDA_SUCCESS)
        free(callback);
    return rt_done(result);
}

RT_BOTH(cudaStreamAddCallback, ptsz,
        (cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned int flags),
        add_callback(fns, stream, function, data, flags))

RT_PLAIN(cudaEventCreate, (cudaEvent_t * event), EventCreate, event, CU_EVENT_DEFAULT)
RT_PLAIN(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), EventCreate, event, flags)
RT_PLAIN(cudaEventQuery, (cudaEvent_t event), EventQuery, event)
RT_PLAIN(cudaEventSynchronize, (cudaEvent_t event), EventSynchronize, event)
RT_PLAIN(cudaEventDestroy, (cudaEvent_t event), EventDestroy, event)
RT_PLAIN(cudaEventElapsedTime, (float *milliseconds, cudaEvent_t start, cudaEvent_t end), EventElapsedTime,
         milliseconds, start, end)
RT_STREAM(cudaEventRecord, ptsz, (cudaEvent_t event, cudaStream_t stream), EventRecord, event, stream)
RT_STREAM(cudaEventRecordWithFlags, ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
          EventRecordWithFlags, event, stream, flags)
