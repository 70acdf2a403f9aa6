/* SPDX-License-Identifier: Apache-2.0 */
/* The second library: linked to the driver, which its calls reach directly when it is opened with RTLD_DEEPBIND. */
#include <cuda.h>
#include <stdint.h>

#include "ways.h"

#define AS(p) ((CUdeviceptr)(uintptr_t)(p))

/* The numbers that are returned here are the same in both. */
static cudaError_t answer(CUresult r)
{
    return (cudaError_t)r;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (kind == cudaMemcpyHostToDevice)
        return answer(cuMemcpyHtoDAsync(AS(to), from, bytes, stream));
    if (kind == cudaMemcpyDeviceToHost)
        return answer(cuMemcpyDtoHAsync(to, AS(from), bytes, stream));
    return answer(cuMemcpyDtoDAsync(AS(to), AS(from), bytes, stream));
}

static cudaError_t set(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return answer(cuMemsetD8Async(AS(to), (unsigned char)value, bytes, stream));
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream)
{
    return answer(cuEventRecord(event, stream));
}

static cudaError_t wait(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return answer(cuStreamWaitEvent(stream, event, flags));
}

static cudaError_t call(cudaStream_t stream, void (*function)(void *), void *data)
{
    return answer(cuLaunchHostFunc(stream, function, data));
}

static cudaError_t query_event(cudaEvent_t event)
{
    return answer(cuEventQuery(event));
}

static cudaError_t query(cudaStream_t stream)
{
    return answer(cuStreamQuery(stream));
}

static cudaError_t sync_event(cudaEvent_t event)
{
    return answer(cuEventSynchronize(event));
}

static cudaError_t sync(cudaStream_t stream)
{
    return answer(cuStreamSynchronize(stream));
}

static cudaError_t sync_device(void)
{
    return answer(cuCtxSynchronize());
}

static cudaError_t allocate(void **at, size_t bytes)
{
    CUdeviceptr got = 0;
    const CUresult r = cuMemAlloc(&got, bytes);
    *at = (void *)(uintptr_t)got;
    return answer(r);
}

static cudaError_t release(void *at)
{
    return answer(cuMemFree(AS(at)));
}

extern const struct way way_bound __attribute__((visibility("default")));
const struct way way_bound = {.copy = copy,
                              .set = set,
                              .record = record,
                              .wait = wait,
                              .call = call,
                              .query_event = query_event,
                              .query = query,
                              .sync_event = sync_event,
                              .sync = sync,
                              .sync_device = sync_device,
                              .allocate = allocate,
                              .release = release};
