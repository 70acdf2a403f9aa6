/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the streams of a program into other contexts: a library to be loaded before slipring, so that programs of these
 * tests need not know. TEST_CONTEXTS:
 *
 *   streams   the non-blocking ones, in turn, are of the primary context and of two green ones; which is first differs by
 *             device
 *   current   cudaSetDevice makes a green context current, in which the thread then makes its streams, events and memory
 *   other     the non-blocking ones are of a context of cuCtxCreate; no kernel of the primary context can be launched on
 *             those, so no GEMM and nothing of NCCL's own
 */
#pragma GCC visibility push(default) /* what the runtime's header declares is what this library exports */
#include <cuda_runtime_api.h>
#pragma GCC visibility pop
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if CUDA_VERSION >= 13000
#define CREATE(ctx, device) cuCtxCreate(ctx, NULL, 0, device)
#else
#define CREATE(ctx, device) cuCtxCreate(ctx, 0, device)
#endif

enum { DEVICES = 16, GREENS = 2, FOREIGN = 256, LEAST_SMS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place { /* of a device */
    bool open;
    CUgreenCtx green[GREENS];
    CUcontext other;
    CUstream bridge; /* of the primary context */
    unsigned made;   /* streams */
} places[DEVICES];
static CUstream foreign[FOREIGN]; /* of the other context */
static unsigned foreigns;

/* What the program would have called. */
#define NEXT(fn) ((__typeof__(&fn))look_up(#fn))

static void *look_up(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (p)
        return p;
    fprintf(stderr, "contexts: no %s\n", name);
    abort();
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        const CUresult r_ = (call);                                                                                    \
        if (r_ != CUDA_SUCCESS) {                                                                                      \
            fprintf(stderr, "contexts: %s: error %d\n", #call, (int)r_);                                               \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static bool mode_is(const char *name)
{
    const char *mode = getenv("TEST_CONTEXTS");
    return strcmp(mode ? mode : "streams", name) == 0;
}

static void open_place(struct place *p, int device)
{
    CUdevResource all, part[GREENS];
    CUdevResourceDesc desc[GREENS];
    CUcontext made;
    unsigned n = GREENS;
    MUST(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    MUST(cuDevSmResourceSplitByCount(part, &n, &all, NULL, 0, LEAST_SMS));
    for (int i = 0; i < GREENS; i++) {
        MUST(cuDevResourceGenerateDesc(&desc[i], &part[i], 1));
        MUST(cuGreenCtxCreate(&p->green[i], desc[i], device, CU_GREEN_CTX_DEFAULT_STREAM));
    }
    MUST(cuStreamCreate(&p->bridge, CU_STREAM_NON_BLOCKING));
    if (mode_is("other")) {
        MUST(CREATE(&p->other, device));
        MUST(cuCtxPopCurrent(&made));
    }
    p->open = true;
}

/* Of the device whose context is current. Under the lock. */
static struct place *place(void)
{
    CUdevice device;
    MUST(cuCtxGetDevice(&device));
    struct place *p = &places[device % DEVICES];
    if (!p->open)
        open_place(p, device);
    return p;
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t r = NEXT(cudaSetDevice)(device);
    CUcontext ctx;
    if (r != cudaSuccess || !mode_is("current"))
        return r;
    pthread_mutex_lock(&lock);
    MUST(cuCtxFromGreenCtx(&ctx, place()->green[0]));
    MUST(cuCtxSetCurrent(ctx));
    pthread_mutex_unlock(&lock);
    return r;
}

static void make_foreign(const struct place *p, CUstream *stream)
{
    CUcontext old;
    MUST(cuCtxPushCurrent(p->other));
    MUST(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent(&old));
    foreign[foreigns++ % FOREIGN] = *stream;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    CUdevice device;
    if (flags != cudaStreamNonBlocking || mode_is("current"))
        return NEXT(cudaStreamCreateWithFlags)(stream, flags);
    NEXT(cudaFree)(NULL); /* a context */
    pthread_mutex_lock(&lock);
    struct place *p = place();
    MUST(cuCtxGetDevice(&device));
    const unsigned in = (p->made++ + (unsigned)device) % (GREENS + 1);
    if (mode_is("other"))
        make_foreign(p, (CUstream *)stream);
    else if (in > 0)
        MUST(cuGreenCtxStreamCreate((CUstream *)stream, p->green[in - 1], CU_STREAM_NON_BLOCKING, 0));
    pthread_mutex_unlock(&lock);
    return in > 0 || mode_is("other") ? cudaSuccess : NEXT(cudaStreamCreateWithFlags)(stream, flags);
}

static bool is_foreign(CUstream stream)
{
    bool is = false;
    for (unsigned i = 0; i < FOREIGN && stream; i++)
        is |= foreign[i] == stream;
    return is;
}

/* An event of the primary context, by one of the stream's own and a stream of the primary one. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUcontext ctx, old;
    CUevent twin;
    if (!is_foreign((CUstream)stream))
        return NEXT(cudaEventRecord)(event, stream);
    pthread_mutex_lock(&lock);
    struct place *p = place();
    MUST(cuStreamGetCtx((CUstream)stream, &ctx));
    MUST(cuCtxPushCurrent(ctx));
    MUST(cuEventCreate(&twin, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(twin, (CUstream)stream));
    MUST(cuCtxPopCurrent(&old));
    MUST(cuStreamWaitEvent(p->bridge, twin, 0));
    MUST(cuEventDestroy(twin));
    pthread_mutex_unlock(&lock);
    return NEXT(cudaEventRecord)(event, (cudaStream_t)p->bridge);
}

cudaError_t cudaDeviceSynchronize(void)
{
    const cudaError_t r = NEXT(cudaDeviceSynchronize)();
    CUcontext old;
    pthread_mutex_lock(&lock);
    const struct place *p = place();
    pthread_mutex_unlock(&lock);
    if (p->other) {
        MUST(cuCtxPushCurrent(p->other));
        MUST(cuCtxSynchronize());
        MUST(cuCtxPopCurrent(&old));
    }
    return r;
}
