/* SPDX-License-Identifier: Apache-2.0 */
/* The driver for tests: looked up in libcuda.so.1, so that tests need not link to it. */
#ifndef SOFTGPU_TEST_CU_H
#define SOFTGPU_TEST_CU_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define CU_FUNCTIONS(X)                                                                                                \
    X(cuInit)                                                                                                          \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuEventCreate)                                                                                                   \
    X(cuEventRecord)                                                                                                   \
    X(cuGraphDestroy)                                                                                                  \
    X(cuGraphExecDestroy)                                                                                              \
    X(cuGraphExecUpdate)                                                                                               \
    X(cuGraphGetNodes)                                                                                                 \
    X(cuGraphInstantiateWithFlags)                                                                                     \
    X(cuGraphLaunch)                                                                                                   \
    X(cuGraphNodeGetType)                                                                                              \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemGetInfo)                                                                                                    \
    X(cuMemcpyDtoH)                                                                                                    \
    X(cuMemcpyHtoD)                                                                                                    \
    X(cuMemcpyHtoDAsync)                                                                                               \
    X(cuMemcpyDtoDAsync)                                                                                               \
    X(cuMemHostRegister)                                                                                               \
    X(cuMemHostGetDevicePointer)                                                                                       \
    X(cuMemsetD32Async)                                                                                                \
    X(cuPointerGetAttribute)                                                                                           \
    X(cuStreamBeginCapture)                                                                                            \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamEndCapture)                                                                                              \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitValue32)

struct cu {
#define CU_FIELD(name) __typeof__(name) *name;
    CU_FUNCTIONS(CU_FIELD)
#undef CU_FIELD
};

#define CU_TEXT(x) #x
#define CU_SYMBOL(x) CU_TEXT(x)

static inline struct cu cu_load(void)
{
    struct cu cu;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
#define CU_LOOK_UP(name)                                                                                               \
    if (!lib || !(cu.name = (__typeof__(name) *)dlsym(lib, CU_SYMBOL(name)))) {                                        \
        fprintf(stderr, "no %s: %s\n", #name, dlerror());                                                              \
        exit(1);                                                                                                       \
    }
    CU_FUNCTIONS(CU_LOOK_UP)
#undef CU_LOOK_UP
    return cu;
}

/* Device `dev`'s primary context, current on this thread. */
static inline void cu_use(const struct cu *cu, int dev)
{
    CUcontext ctx;
    if (cu->cuInit(0) || cu->cuDevicePrimaryCtxRetain(&ctx, dev) || cu->cuCtxSetCurrent(ctx)) {
        fprintf(stderr, "device %d can not be used\n", dev);
        exit(1);
    }
}

#endif
