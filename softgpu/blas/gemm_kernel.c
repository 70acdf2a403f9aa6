/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM as a built-in kernel of the stand-in driver: registration, launch, access ranges and cost. */
#include "gemm.h"
#include "gemm_scale.h"

#include <cblas.h>
#include <pthread.h>

static softgpuComputeOff_t compute_off;

static void run(void *args)
{
    if (!compute_off())
        gemm_compute(args);
}

static double flops(const void *args)
{
    const struct gemm_args *g = args;
    return 2.0 * (double)g->m * (double)g->n * (double)g->k * g->batch;
}

struct ranges {
    struct softgpu_access *out;
    unsigned count, max;
};

static void add_range(struct ranges *r, const void *ptr, size_t row_bytes, size_t rows, size_t pitch, int write)
{
    if (r->count < r->max && row_bytes && rows)
        r->out[r->count++] = (struct softgpu_access){(CUdeviceptr)ptr, row_bytes, rows, pitch, write};
}

/* A batch of evenly spaced matrices is one range where the spacing continues the columns; else one range per entry,
 * as far as the driver has room for them. */
static void add_matrix(struct ranges *r, const struct gemm_mat *mat, int batch, int write)
{
    size_t esz = gemm_type_bytes(mat->type), pitch = (size_t)mat->ld * esz, row = (size_t)mat->rows * esz;
    int merged = batch == 1 || mat->stride == mat->ld * mat->cols;
    if (merged) {
        add_range(r, mat->ptr, row, (size_t)mat->cols * (size_t)batch, pitch, write);
        return;
    }
    for (int i = 0; i < (mat->stride ? batch : 1); i++)
        add_range(r, (const char *)mat->ptr + i * mat->stride * (int64_t)esz, row, (size_t)mat->cols, pitch, write);
}

static unsigned access_ranges(const void *args, struct softgpu_access *out, unsigned max)
{
    const struct gemm_args *g = args;
    struct ranges r = {.out = out, .max = max};
    size_t scalar = gemm_type_bytes(g->scale_type), bias = gemm_type_bytes(g->bias_type);
    add_matrix(&r, &g->d, g->batch, 1);
    if (g->aux.ptr && g->aux_bits)
        add_range(&r, g->aux.ptr, (size_t)(g->m + 127) / 128 * 16, (size_t)(g->n * g->batch), (size_t)g->aux.ld / 8,
                  !g->aux_in);
    else if (g->aux.ptr)
        add_matrix(&r, &g->aux, g->batch, !g->aux_in);
    add_range(&r, g->amax_d, g->amax_d ? sizeof(float) : 0, 1, sizeof(float), 1);
    add_range(&r, g->amax_aux, g->amax_aux ? sizeof(float) : 0, 1, sizeof(float), 1);
    if (g->vector)
        add_range(&r, g->vector, (size_t)(g->gradient == GEMM_GRADIENT_B ? g->n : g->m) * bias, 1, bias, 1);
    for (int i = 0; i < GEMM_SCALES; i++)
        if (g->scale[i].at) {
            const size_t bytes = i <= GEMM_SCALE_B ? gemm_scale_bytes(g, i) : sizeof(float);
            add_range(&r, g->scale[i].at, bytes, 1, bytes, 0);
        }
    add_range(&r, g->workspace, g->workspace_bytes, 1, g->workspace_bytes, 1);
    add_matrix(&r, &g->a, g->batch, 0);
    add_matrix(&r, &g->b, g->batch, 0);
    if (g->beta_dev || g->beta != 0)
        add_matrix(&r, &g->c, g->batch, 0);
    if (g->alpha_dev) {
        add_range(&r, g->alpha_dev, scalar, 1, scalar, 0);
        add_range(&r, g->beta_dev, scalar, 1, scalar, 0);
    }
    if (g->bias)
        add_range(&r, g->bias, (size_t)g->m * bias, g->bias_stride ? (size_t)g->batch : 1,
                  (size_t)g->bias_stride * bias, 0);
    return r.count;
}

static int leaves_room(const void *args)
{
    const struct gemm_args *g = args;
    return g->sm_target > 0 && g->sm_target < SOFTGPU_MULTIPROCESSORS;
}

static const struct softgpu_kernel_desc gemm_kernel = {.name = "softgpu_gemm",
                                                       .arg_bytes = sizeof(struct gemm_args),
                                                       .run = run,
                                                       .access = access_ranges,
                                                       .flops = flops,
                                                       .leaves_room = leaves_room,
                                                       .lazy = 1};

static CUfunction function;
static CUresult registered;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Several streams' workers multiply at the same time, each on its own: OpenBLAS's own threads would only get in the
 * way, and their barrier does not like to share a core. */
static void register_kernel(void)
{
    const struct softdrv *drv = softdrv_get();
    openblas_set_num_threads(1);
    compute_off = drv->compute_off;
    registered = drv->kernel_register(&gemm_kernel, &function);
}

CUresult gemm_launch(const struct softdrv *drv, const struct gemm_args *args, CUstream stream)
{
    CUcontext ctx;
    CUresult rc = softdrv_need_context(drv, &ctx);
    if (rc != CUDA_SUCCESS)
        return rc;
    pthread_once(&once, register_kernel);
    if (registered != CUDA_SUCCESS)
        return registered;
    void *params[] = {(void *)args};
    return drv->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
