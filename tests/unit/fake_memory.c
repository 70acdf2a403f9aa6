/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_memory.h"

#include <pthread.h>
#include <stdlib.h>

enum { SLOTS = 4096 };
#define BASE ((CUdeviceptr)1 << 32)

struct fake_memory fake;
const CUstream fake_stream = (CUstream)0x3000, fake_side = (CUstream)0x3100;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUdeviceptr base;
    size_t size;
} live[SLOTS]; /* sorted */
static int count;

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static int due(int *counter)
{
    return *counter > 0 && --*counter == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return due(&fake.fail_calloc) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return due(&fake.fail_realloc) ? NULL : __real_realloc(p, size);
}

CUcontext fake_primary(int device)
{
    return (CUcontext)(uintptr_t)(0x1000 + device);
}

CUcontext fake_other(int device)
{
    return (CUcontext)(uintptr_t)(0x2000 + device);
}

static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

static bool refused(void)
{
    return fake.global_capture && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

static CUresult mem_alloc(CUdeviceptr *out, size_t bytes)
{
    CUresult r = refused() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    fake.allocs++;
    if (r == CUDA_ERROR_OUT_OF_MEMORY && !due(&fake.fail_alloc) && bytes <= fake.capacity - fake.used &&
        count < SLOTS) {
        CUdeviceptr at = BASE;
        int i = 0;
        while (i < count && live[i].base - at < bytes) {
            at = live[i].base + live[i].size;
            i++;
        }
        for (int j = count; j > i; j--)
            live[j] = live[j - 1];
        live[i].base = at;
        live[i].size = bytes;
        count++;
        fake.used += bytes;
        fake.peak = fake.used > fake.peak ? fake.used : fake.peak;
        *out = at;
        r = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static CUresult mem_free(CUdeviceptr p)
{
    CUresult r = refused() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : fake.free_result;
    pthread_mutex_lock(&lock);
    fake.frees++;
    int i = 0;
    while (i < count && live[i].base != p)
        i++;
    if (i == count)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        fake.used -= live[i].size;
        count--;
        for (; i < count; i++)
            live[i] = live[i + 1];
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static bool is_stream(CUstream stream)
{
    return stream == fake_stream || stream == fake_side || stream == CU_STREAM_PER_THREAD;
}

/* In stream order: does not count as a free that waits. */
static CUresult mem_free_async(CUdeviceptr p, CUstream stream)
{
    CUresult r = fake.async_result;
    if (r == CUDA_SUCCESS && !is_stream(stream))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS)
        r = mem_free(p);
    fake.frees -= r == CUDA_SUCCESS;
    return r;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = fake.captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags)
{
    fake.events++;
    *out = (CUevent)0x4000;
    return flags == CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)event;
    return is_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult event_query(CUevent event)
{
    (void)event;
    if (fake.on_query)
        fake.on_query();
    return fake.event_result;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    fake.events--;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags, int priority)
{
    (void)priority;
    fake.streams++;
    *out = fake_stream;
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult stream_synchronize(CUstream stream)
{
    return stream == fake_stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult stream_destroy(CUstream stream)
{
    fake.streams--;
    return stream_synchronize(stream);
}

size_t fake_size_at(CUdeviceptr p)
{
    for (int i = 0; i < count; i++)
        if (live[i].base == p)
            return live[i].size;
    return 0;
}

void fake_reset(void)
{
    count = 0;
    fake.used = 0;
}

static CUresult mem_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = fake.capacity - fake.used;
    *total = fake.capacity;
    return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = fake.capacity;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ctx)
{
    *ctx = fake.current;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    *device = (int)((uintptr_t)fake.current & 0xfff);
    return CUDA_SUCCESS;
}

static CUresult state(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = fake.active;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ctx, CUdevice device)
{
    *ctx = fake_primary(device);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext ctx)
{
    return ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult pop(CUcontext *ctx)
{
    *ctx = fake.current;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    __atomic_fetch_add(&fake.syncs, 1, __ATOMIC_RELAXED);
    if (fake.on_sync)
        fake.on_sync();
    return fake.sync_result;
}

void fake_start(const char *mode, const char *budget, size_t capacity)
{
    setenv("SLIPRING_ALLOC", mode, 1);
    setenv("SLIPRING_ALLOC_BYTES", budget, 1);
    setenv("SLIPRING_ALLOC_FRACTION", "100", 1);
    fake.capacity = capacity;
    fake.current = fake_primary(0);
    fake.active = 1;
    slr_real.cuMemAlloc = mem_alloc;
    slr_real.cuMemFree = mem_free;
    slr_real.cuMemGetInfo = mem_info;
    slr_real.cuDeviceTotalMem = total_mem;
    slr_real.cuCtxGetCurrent = get_current;
    slr_real.cuCtxGetDevice = get_device;
    slr_real.cuDevicePrimaryCtxGetState = state;
    slr_real.cuDevicePrimaryCtxRetain = retain;
    slr_real.cuDevicePrimaryCtxRelease = release;
    slr_real.cuCtxPushCurrent = push;
    slr_real.cuCtxPopCurrent = pop;
    slr_real.cuCtxSynchronize = synchronize;
    slr_real.cuThreadExchangeStreamCaptureMode = exchange_mode;
    slr_real.cuMemFreeAsync = mem_free_async;
    slr_real.cuStreamIsCapturing = is_capturing;
    slr_real.cuEventCreate = event_create;
    slr_real.cuEventRecord = event_record;
    slr_real.cuEventQuery = event_query;
    slr_real.cuEventDestroy = event_destroy;
    slr_real.cuStreamCreateWithPriority = stream_create;
    slr_real.cuStreamSynchronize = stream_synchronize;
    slr_real.cuStreamDestroy = stream_destroy;
}
