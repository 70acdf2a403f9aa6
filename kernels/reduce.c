/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/scatter.h"

#include <string.h>
#include "base/status.h"
#include "kernels/reduce_args.h"
#include "kernels/ring.h"

_Static_assert(SLR_REDUCE_RANKS == SLR_MAX_RANKS, "a contribution of each rank fits");

/* reduce_ptx.S: the text of reduce.ptx, with a 0 at its end. */
extern const char slr_reduce_ptx[] __attribute__((visibility("hidden")));

static const struct {
    const char *name;
    size_t bytes; /* of an element */
} kernels[SLR_REDUCE_TYPES] = {[SLR_REDUCE_BF16] = {"slr_reduce_bf16", 2},
                               [SLR_REDUCE_F16] = {"slr_reduce_f16", 2},
                               [SLR_REDUCE_F32] = {"slr_reduce_f32", 4},
                               [SLR_REDUCE_BYTE] = {"slr_copy", 1}};

/* A handle need not mean that the code is on the device. Drivers before 12.4 have no call for it, but
 * they load what they are asked an attribute of. */
static enum slr_status load_now(CUfunction f)
{
    int registers;
    return slr_real.cuFuncLoad ? SLR_CU(cuFuncLoad, f)
                               : SLR_CU(cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
}

static enum slr_status load_module(struct slr_reduce *r)
{
    SLR_TRY(SLR_CU(cuModuleLoadData, &r->module, slr_reduce_ptx));
    for (int t = 0; t < SLR_REDUCE_TYPES; t++) {
        SLR_TRY(SLR_CU(cuModuleGetFunction, &r->function[t], r->module, kernels[t].name));
        SLR_TRY(load_now(r->function[t]));
    }
    return SLR_OK;
}

enum slr_status slr_reduce_load(struct slr_reduce *r)
{
    if (r->module)
        return SLR_OK;
    if (!slr_real.cuModuleLoadData || !slr_real.cuModuleUnload || !slr_real.cuModuleGetFunction ||
        !slr_real.cuLaunchKernel || (!slr_real.cuFuncLoad && !slr_real.cuFuncGetAttribute))
        return SLR_ABSENT;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    slr_swap_capture_mode(&mode);
    enum slr_status s = load_module(r);
    if (s != SLR_OK)
        slr_reduce_unload(r);
    slr_swap_capture_mode(&mode);
    return s;
}

void slr_reduce_unload(struct slr_reduce *r)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (r->module) {
        slr_swap_capture_mode(&mode);
        slr_cu_check(slr_real.cuModuleUnload(r->module), "cuModuleUnload");
        slr_swap_capture_mode(&mode);
    }
    memset(r, 0, sizeof *r);
}

/* More blocks than have something to do would only take room. */
static unsigned useful_blocks(unsigned blocks, size_t bytes)
{
    size_t tile = SLR_REDUCE_THREADS * 16, most = bytes / tile + (bytes % tile != 0);
    blocks = blocks ? blocks : SLR_REDUCE_BLOCKS;
    return most < blocks ? (unsigned)most : blocks;
}

enum slr_status slr_reduce(const struct slr_reduce *r, CUstream stream, enum slr_reduce_type type, void *out,
                           void *also, const void *const in[], int n, size_t count, float divisor, unsigned blocks)
{
    if (!r->module || (unsigned)type >= SLR_REDUCE_TYPES || n < 1 || n > SLR_REDUCE_RANKS)
        return SLR_ABSENT;
    if (type == SLR_REDUCE_BYTE && (n != 1 || also))
        return SLR_ABSENT;
    if (!count)
        return SLR_OK;
    struct slr_reduce_args args = {.out = out, .also = also, .count = count, .factor = 1.0 / (double)divisor, .n = n};
    memcpy(args.in, in, (size_t)n * sizeof in[0]);
    void *params[] = {&args};
    return SLR_CU(cuLaunchKernel, r->function[type], useful_blocks(blocks, count * kernels[type].bytes), 1, 1,
                  SLR_REDUCE_THREADS, 1, 1, 0, stream, params, NULL);
}

enum slr_status slr_copy(const struct slr_reduce *r, CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const void *const in = (const void *)(uintptr_t)from;
    return slr_reduce(r, stream, SLR_REDUCE_BYTE, (void *)(uintptr_t)to, NULL, &in, 1, bytes, 1, 0);
}

enum slr_status slr_copy_set(const struct slr_reduce *r, CUgraphExec exec, CUgraphNode node, CUdeviceptr to,
                             CUdeviceptr from, size_t bytes)
{
    struct slr_reduce_args args = {
        .out = (void *)(uintptr_t)to, .in = {(const void *)(uintptr_t)from}, .count = bytes, .factor = 1, .n = 1};
    void *params[] = {&args};
    const CUDA_KERNEL_NODE_PARAMS p = {.func = r->function[SLR_REDUCE_BYTE],
                                       .gridDimX = useful_blocks(0, bytes),
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = SLR_REDUCE_THREADS,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
    return SLR_CU(cuGraphExecKernelNodeSetParams, exec, node, &p);
}
