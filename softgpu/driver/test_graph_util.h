/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of captures and graphs: two streams, 16 words of device memory that begin as 0, and a kernel. */
#ifndef SOFTGPU_TEST_GRAPH_UTIL_H
#define SOFTGPU_TEST_GRAPH_UTIL_H

#include "../softgpu.h"
#include "test_held.h"
#include <dlfcn.h>

#define WORDS 16

static CUstream s, t;
static CUdeviceptr data;
static CUcontext ctx;
static CUfunction adder;

/* Adds `value` to the word at `at`. */
struct add {
    CUdeviceptr at;
    uint32_t value;
};

static inline void run_add(void *args)
{
    const struct add *a = args;
    *(uint32_t *)a->at += a->value;
}

static inline unsigned add_accesses(const void *args, struct softgpu_access *out, unsigned max)
{
    if (max)
        *out = (struct softgpu_access){((const struct add *)args)->at, 4, 1, 4, 1};
    return 1;
}

static const struct softgpu_kernel_desc add_kernel = {
    .name = "add", .arg_bytes = sizeof(struct add), .run = run_add, .access = add_accesses};

static inline void setup(void)
{
    softgpuKernelRegister_t reg;
    watch_reports();
    ctx = start(0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, 4 * WORDS));
    OK(cuMemsetD32(data, 0, WORDS));
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(&add_kernel, &adder));
    OK(cuCtxSynchronize());
}

static inline CUdeviceptr at(int i)
{
    return data + 4 * (unsigned)i;
}

static inline uint32_t word(int i)
{
    uint32_t v;
    OK(cuMemcpyDtoH(&v, at(i), 4));
    return v;
}

static inline void add_on(CUstream on, int i, uint32_t value)
{
    struct add a = {at(i), value};
    void *params[] = {&a};
    OK(cuLaunchKernel(adder, 1, 1, 1, 32, 1, 1, 0, on, params, NULL));
}

static inline void set_on(CUstream on, int i, uint32_t value)
{
    OK(cuMemsetD32Async(at(i), value, 1, on));
}

static inline CUevent new_event(void)
{
    CUevent e;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    return e;
}

/* `to` follows what is on `from` now. */
static inline void follow(CUstream from, CUstream to)
{
    CUevent e = new_event();
    OK(cuEventRecord(e, from));
    OK(cuStreamWaitEvent(to, e, 0));
    OK(cuEventDestroy(e));
}

static inline void begin(CUstream on)
{
    OK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static inline CUgraph end(CUstream on)
{
    CUgraph g;
    OK(cuStreamEndCapture(on, &g));
    return g;
}

static inline CUgraphExec executable(CUgraph g)
{
    CUgraphExec x;
    OK(cuGraphInstantiate(&x, g, 0));
    return x;
}

/* Ends the capture; the graph itself goes. */
static inline CUgraphExec end_executable(CUstream on)
{
    CUgraph g = end(on);
    CUgraphExec x = executable(g);
    OK(cuGraphDestroy(g));
    return x;
}

static inline void launch(CUgraphExec x, CUstream on)
{
    OK(cuGraphLaunch(x, on));
}

static inline void launch_and_wait(CUgraphExec x)
{
    launch(x, s);
    OK(cuStreamSynchronize(s));
}

static inline CUstreamCaptureStatus status_of(CUstream on)
{
    CUstreamCaptureStatus st;
    OK(cuStreamIsCapturing(on, &st));
    return st;
}

static inline size_t nodes_of(CUgraph g, CUgraphNode *nodes, size_t room)
{
    size_t n = room;
    OK(cuGraphGetNodes(g, nodes, &n));
    return n;
}

static inline CUgraphNodeType type_of(CUgraphNode n)
{
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(n, &type));
    return type;
}

static inline bool depends(CUgraphNode n, CUgraphNode on)
{
    CUgraphNode deps[32];
    size_t count = 32;
    OK(cuGraphNodeGetDependencies(n, deps, NULL, &count));
    for (size_t i = 0; i < count; i++)
        if (deps[i] == on)
            return true;
    return false;
}

#endif
