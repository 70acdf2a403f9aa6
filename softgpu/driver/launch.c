/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in kernels: functions that the stand-in libraries register and launch like device code. */
#include "device_code.h"
#include "sg.h"
#include <stdlib.h>
#include <string.h>

#define MAX_KERNELS 256
#define MAX_SHARED 232448 /* bytes of shared memory that a block can have */
static struct {
    const struct softgpu_kernel_desc *desc;
    CUfunction handle;
} kernels[MAX_KERNELS];
static unsigned nkernels;

CUresult softgpuKernelRegister(const struct softgpu_kernel_desc *desc, CUfunction *out);
__attribute__((visibility("default"))) CUresult softgpuKernelRegister(const struct softgpu_kernel_desc *desc,
                                                                      CUfunction *out)
{
    CUresult rc = CUDA_SUCCESS;
    unsigned i;

    if (!desc || !desc->name || !desc->run || !out)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    for (i = 0; i < nkernels && strcmp(kernels[i].desc->name, desc->name); i++)
        ;
    if (i == MAX_KERNELS) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        if (i == nkernels) {
            kernels[i].desc = desc;
            kernels[i].handle = sg_handle_new_locked(SG_FUNC, (void *)(uintptr_t)desc);
            nkernels++;
        }
        *out = kernels[i].handle;
    }
    sg_release();
    return rc;
}

static void add_ranges(struct sg_op *op)
{
    const struct softgpu_kernel_desc *d = op->u.kernel.desc;
    struct softgpu_access few[SG_RANGES], *all = few;
    unsigned n = d->access ? d->access(op->u.kernel.args, few, SG_RANGES) : 0;

    if (n > SG_RANGES) { /* the descriptor tells how many there are */
        all = malloc(n * sizeof(*all));
        if (!all)
            abort();
        n = d->access(op->u.kernel.args, all, n);
    }
    for (unsigned i = 0; i < n; i++)
        if (all[i].rows && all[i].row_bytes)
            sg_op_range(op, all[i].ptr, (all[i].rows - 1) * all[i].pitch + all[i].row_bytes,
                        all[i].write ? SG_RANGE_WRITE : 0);
    if (all != few)
        free(all);
}

/* ---- lazy loading ---- */

#define LOADED 64 /* the oldest is forgotten, and loaded again */
static __thread struct {
    uint64_t ctx;
    const struct softgpu_kernel_desc *desc;
} loaded[LOADED];
static __thread unsigned nloaded;

/* By thread: cuBLAS has many kernels, and which of them a call takes no program knows. So the first in a thread stands
 * for one that was not loaded before. A module's function is what the program has got, and is loaded once. */
static bool loads_locked(const struct sg_ctx *ctx, const struct softgpu_kernel_desc *desc)
{
    if (sg_module_has_locked(desc))
        return sg_module_first_use_locked(desc);
    if (!desc->lazy)
        return false;
    for (unsigned i = 0; i < nloaded && i < LOADED; i++)
        if (loaded[i].ctx == ctx->id && loaded[i].desc == desc)
            return false;
    loaded[nloaded % LOADED].ctx = ctx->id;
    loaded[nloaded++ % LOADED].desc = desc;
    return true;
}

#define MAX_GRID_X 0x7fffffffu
#define MAX_GRID_YZ 65535u
#define MAX_THREADS 1024u /* of a block, and along x and y */
#define MAX_THREADS_Z 64u

static bool empty_grid(const CUDA_KERNEL_NODE_PARAMS *p)
{
    return !p->gridDimX || !p->gridDimY || !p->gridDimZ || !p->blockDimX || !p->blockDimY || !p->blockDimZ;
}

/* CUDA Programming Guide, Technical Specifications per Compute Capability. */
static bool too_large(const CUDA_KERNEL_NODE_PARAMS *p)
{
    return p->gridDimX > MAX_GRID_X || p->gridDimY > MAX_GRID_YZ || p->gridDimZ > MAX_GRID_YZ ||
           p->blockDimX > MAX_THREADS || p->blockDimY > MAX_THREADS || p->blockDimZ > MAX_THREADS_Z ||
           p->blockDimX * p->blockDimY * p->blockDimZ > MAX_THREADS;
}

CUresult sg_kernel_op(const CUDA_KERNEL_NODE_PARAMS *p, struct sg_op **out)
{
    const struct softgpu_kernel_desc *desc = NULL;

    if (empty_grid(p) || too_large(p) || p->sharedMemBytes > MAX_SHARED || p->extra)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    desc = sg_handle_get_locked(SG_FUNC, p->func);
    CUresult rc = desc ? sg_module_launch_locked(desc, p) : CUDA_ERROR_INVALID_HANDLE;
    sg_release();
    if (rc)
        return rc;
    if (desc->arg_bytes && (!p->kernelParams || !p->kernelParams[0]))
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_op *op = sg_op_new(SG_OP_KERNEL, desc->name);
    op->launch = true;
    op->u.kernel = (struct sg_kernel){.desc = desc,
                                      .func = p->func,
                                      .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                      .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                      .shared_bytes = p->sharedMemBytes,
                                      .args = malloc(desc->arg_bytes ? desc->arg_bytes : 1)};
    if (!op->u.kernel.args)
        abort();
    if (desc->arg_bytes)
        memcpy(op->u.kernel.args, p->kernelParams[0], desc->arg_bytes);
    add_ranges(op);
    *out = op;
    return CUDA_SUCCESS;
}

static CUresult launch(CUstream stream, const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct sg_op *op = NULL;
    CUresult rc = sg_kernel_op(p, &op);

    if (rc)
        return rc;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    struct sg_stream *s = ctx ? sg_stream_get_locked(stream, &rc) : NULL;
    if (s && (sg_root(s->ctx) != sg_root(ctx) || !sg_module_fits_locked(op->u.kernel.desc, ctx)))
        rc = CUDA_ERROR_INVALID_HANDLE;
    if (rc)
        sg_op_free_locked(op);
    else if (sg_cfg.lazy && !s->capture && loads_locked(ctx, op->u.kernel.desc))
        sg_ctx_sync_locked(ctx);
    sg_release();
    return rc ? rc : sg_submit(stream, op);
}

static CUresult cuLaunchKernel_on(CUstream stream, CUDA_KERNEL_NODE_PARAMS p)
{
    return launch(stream, &p);
}
SG_PAIR(cuLaunchKernel, _ptsz,
        (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
         unsigned int bz, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
        (hStream,
         (CUDA_KERNEL_NODE_PARAMS){f, gx, gy, gz, bx, by, bz, sharedMemBytes, kernelParams, extra, NULL, NULL}),
        (SG_PT(hStream),
         (CUDA_KERNEL_NODE_PARAMS){f, gx, gy, gz, bx, by, bz, sharedMemBytes, kernelParams, extra, NULL, NULL}))

static CUresult cuLaunchCooperativeKernel_on(CUstream stream, CUDA_KERNEL_NODE_PARAMS p)
{
    return launch(stream, &p);
}
SG_PAIR(cuLaunchCooperativeKernel, _ptsz,
        (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
         unsigned int bz, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams),
        (hStream, (CUDA_KERNEL_NODE_PARAMS){f, gx, gy, gz, bx, by, bz, sharedMemBytes, kernelParams, NULL, NULL, NULL}),
        (SG_PT(hStream),
         (CUDA_KERNEL_NODE_PARAMS){f, gx, gy, gz, bx, by, bz, sharedMemBytes, kernelParams, NULL, NULL, NULL}))

static const struct softgpu_kernel_desc *function(CUfunction f)
{
    sg_acquire();
    const struct softgpu_kernel_desc *d = sg_handle_get_locked(SG_FUNC, f);
    sg_release();
    return d;
}

/* The event of an attribute that makes the launch record one. */
static CUevent event_of(const CUlaunchAttribute *a)
{
    return a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT        ? a->value.programmaticEvent.event
           : a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ? a->value.launchCompletionEvent.event
                                                                  : NULL;
}

/* cuda.h: these events complete when all blocks of the kernel have begun, or have triggered them. Here they do as early
 * as that allows: when the kernel may begin. */
static CUresult record_events(const CUlaunchConfig *c, CUstream stream)
{
    CUresult rc = c->numAttrs && !c->attrs ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

    for (unsigned i = 0; i < c->numAttrs && !rc; i++)
        if (event_of(&c->attrs[i]))
            rc = sg_event_for_launch(event_of(&c->attrs[i]));
    for (unsigned i = 0; i < c->numAttrs && !rc; i++)
        if (event_of(&c->attrs[i]))
            rc = sg_event_record(event_of(&c->attrs[i]), stream, false);
    return rc;
}

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra, bool per_thread)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS p = {
        f,      c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
        params, extra,       NULL,        NULL};
    if (empty_grid(&p))
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = per_thread ? SG_PT(c->hStream) : c->hStream;
    CUresult rc = function(f) ? record_events(c, stream) : CUDA_ERROR_INVALID_HANDLE;
    return rc ? rc : launch(stream, &p);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    SG_ENTER(cuLaunchKernelEx);
    return launch_ex(config, f, kernelParams, extra, false);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    SG_ENTER(cuLaunchKernelEx_ptsz);
    return launch_ex(config, f, kernelParams, extra, true);
}

CUresult CUDAAPI cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    SG_ENTER(cuFuncGetAttribute);
    if (!pi || (unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = sg_function_load(hfunc);
    if (rc)
        return rc;
    *pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
          : attrib == CU_FUNC_ATTRIBUTE_BINARY_VERSION      ? 90
          : attrib == CU_FUNC_ATTRIBUTE_PTX_VERSION         ? 90
                                                            : 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    SG_ENTER(cuFuncSetAttribute);
    (void)value;
    if ((unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return function(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    SG_ENTER(cuFuncSetCacheConfig);
    (void)config;
    return function(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction hfunc)
{
    const struct softgpu_kernel_desc *d;

    SG_ENTER(cuFuncGetName);
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    d = function(hfunc);
    if (!d)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = d->name;
    return CUDA_SUCCESS;
}
