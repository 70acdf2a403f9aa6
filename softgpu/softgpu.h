/* SPDX-License-Identifier: Apache-2.0 */
/* softgpu: what the stand-in libraries (cuBLAS, cuBLASLt, NCCL) use of the stand-in driver besides CUDA's own API.
 *
 * A "built-in kernel" is a host function that the stand-in driver runs on a stream's worker thread. The stand-ins
 * launch it through the ordinary cuLaunchKernel entry point that they looked up with cuGetProcAddress, exactly as the
 * real libraries launch device code, so whatever interposes the driver sees the launch.
 *
 * Device pointers: a device pointer is valid as a host pointer in the process that it belongs to (device memory is a
 * shared mapping), so a kernel dereferences the pointers in its arguments directly.
 *
 * The driver exports softgpuKernelRegister from libcuda.so.1; look it up with dlsym on that library, never link to it.
 */
#ifndef SOFTGPU_H
#define SOFTGPU_H

#include <cuda.h>
#include <stddef.h>

/* One strided range that a kernel reads or writes: `rows` runs of `row_bytes`, `pitch` bytes apart. The driver checks
 * each against its table of live memory (freed, foreign, out of bounds: named and reported) before the kernel runs. */
struct softgpu_access {
    CUdeviceptr ptr;
    size_t row_bytes, rows, pitch;
    int write;
};

#define SOFTGPU_MULTIPROCESSORS 132

struct softgpu_kernel_desc {
    const char *name;        /* for reports and logs; static */
    size_t arg_bytes;        /* size of the argument block; copied from kernelParams[0] when the launch is made */
    void (*run)(void *args); /* on the worker thread, in stream order; `args` is the launch's own copy, freed after */
    /* Fills at most `max` ranges and returns how many there are. NULL: nothing to check. */
    unsigned (*access)(const void *args, struct softgpu_access *out, unsigned max);
    /* Work for the timing model: floating-point operations. NULL: none. */
    double (*flops)(const void *args);
    /* Of such a kernel, whether it leaves multiprocessors free, for kernels that receive and begin meanwhile: those wait
     * for its end else, as it has a block for each. NULL: it does not. */
    int (*leaves_room)(const void *args);
    /* Bytes that cross a device's link (received), for the timing model of collectives. NULL: none. */
    double (*link_bytes)(const void *args);
    /* The same over the network, at SOFTGPU_NET_GBS. NULL: none. */
    double (*net_bytes)(const void *args);
    /* What part it takes of what a collective takes of the multiprocessors (SOFTGPU_COLLECTIVE_SHARE). NULL: all. */
    double (*share)(const void *args);
    /* For the race oracle: names what the kernel meets other kernels in, of any process: it ends after those have
     * begun. Kernels with the same `turn` follow one another. NULL or 0: it meets nobody. */
    unsigned long long (*meets)(const void *args, const void **turn);
    /* Called when a launch is put into a queue, at each replay of a graph as well, in the order of the calls that do so;
     * may change the launch's own copy of the arguments. Must not call the driver. NULL: nothing to do. */
    void (*queued)(void *args);
    /* 1: loaded lazily, so its first launch synchronises its context (SOFTGPU_LAZY). NCCL has loaded its
     * own when a communicator is made. */
    int lazy;
};

/* Registers (once per process and name) and returns a handle for cuLaunchKernel with grid 1 and
 * kernelParams = { pointer to an argument block of arg_bytes }. */
typedef CUresult (*softgpuKernelRegister_t)(const struct softgpu_kernel_desc *desc, CUfunction *out);

/* The kernel that stands for device code which calls cudaGraphSetConditional: a built-in one, with these arguments. Exported
 * by libcuda.so.1; a program that runs on a real driver, too, does without it there. */
struct softgpu_set_conditional {
    CUgraphConditionalHandle handle;
    CUdeviceptr
        word; /* 0: the handle gets `value`; else the word of device memory loses `value`, and it gets the rest */
    unsigned value;
};
typedef CUresult (*softgpuSetConditional_t)(CUfunction *out);

/* 1 when the timing model runs without data (SOFTGPU_COMPUTE=0): kernels must then not touch their operands. */
typedef int (*softgpuComputeOff_t)(void);

/* 1 when the stand-in NCCL's kernels must not notice that a peer has died or left (SOFTGPU_NCCL_BLIND). */
typedef int (*softgpuNcclBlind_t)(void);

/* 1 when a capture forbids the calling thread what cuCtxEnablePeerAccess does; it is broken then, as by that call. */
typedef int (*softgpuCaptureForbids_t)(void);

/* Names wrong use of a stand-in library where the driver's own reports go (SOFTGPU_REPORT, SOFTGPU_MISUSE). */
typedef void (*softgpuMisuse_t)(const char *text);

#endif
