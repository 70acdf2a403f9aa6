/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of PTX, as far as device_code.h knows what is in them. A text none of whose entry points it knows is refused
 * as other images are: there is none for this device. */
#include "device_code.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 1024
#define SM 90

struct module {
    CUmodule handle;
    uint64_t ctx; /* id */
};
struct function { /* never freed: graphs and queues may hold it when its module is gone */
    struct softgpu_kernel_desc desc;
    const struct sg_model *model; /* NULL: unknown */
    char name[128];
    struct module *module; /* NULL: unloaded */
    CUfunction handle;     /* NULL: nobody has asked for it */
    unsigned long threads;
    bool loaded;
    struct function *next;
};
static struct function *functions;

/* ---- what is in a PTX text ---- */

static const char *skip_blank(const char *p)
{
    for (;;) {
        while (isspace((unsigned char)*p))
            p++;
        if (p[0] != '/' || p[1] != '/')
            return p;
        p += strcspn(p, "\n");
    }
}

static bool is_ptx(const char *text)
{
    return !strncmp(skip_blank(text), ".version", 8);
}

static bool for_a_newer_device(const char *text)
{
    const char *target = strstr(text, "\n.target sm_");
    return !target || strtoul(target + 12, NULL, 10) > SM;
}

/* The next entry point behind p: its name, and where its parameters begin. NULL: there is no further one. */
static const char *next_entry(const char *p, char *name, size_t room)
{
    const char *at = strstr(p, ".entry ");
    if (!at)
        return NULL;
    at = skip_blank(at + 7);
    size_t n = strcspn(at, "( \t\r\n");
    snprintf(name, room, "%.*s", (int)n, at);
    return at + n;
}

/* Bytes of the one parameter; 0 when there is none, or more. `end`: behind the list of them. */
static size_t parameter_bytes(const char *p, const char **end)
{
    const char *open = strchr(p, '('), *close = open ? strchr(open, ')') : NULL;
    if (!close)
        return 0;
    *end = close;
    const char *size = memchr(open, '[', (size_t)(close - open));
    bool several = memchr(open, ',', (size_t)(close - open)) != NULL;
    return size && !several ? strtoul(size + 1, NULL, 10) : 0;
}

/* The most threads that its blocks may have: .maxntid X, Y, Z stands between the parameters and the body. */
static unsigned long most_threads(const char *p)
{
    const char *body = strchr(p, '{'), *limit = strstr(p, ".maxntid ");
    if (!body || !limit || limit > body)
        return MOST_THREADS;
    unsigned long n = 1;
    for (char *at = (char *)limit + 8; at < body && (*at == ',' || at == limit + 8);)
        n *= strtoul(at + 1, &at, 10);
    return n;
}

static const struct sg_model *model_of(const char *name)
{
    for (unsigned i = 0; i < sg_models_reduce_count; i++)
        if (!strcmp(sg_models_reduce[i].desc.name, name))
            return &sg_models_reduce[i];
    return NULL;
}

/* One entry point becomes a function. */
static CUresult add_locked(struct module *m, const char *name, const char *params)
{
    const char *end = params;
    struct function *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    size_t bytes = parameter_bytes(params, &end);
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->model = model_of(name);
    f->desc = f->model ? f->model->desc : (struct softgpu_kernel_desc){0};
    f->desc.name = f->name;
    f->module = m;
    f->threads = most_threads(end);
    f->loaded = !sg_cfg.lazy;
    f->next = functions;
    functions = f;
    if (!f->model || bytes == f->desc.arg_bytes)
        return CUDA_SUCCESS;
    sg_misuse("%s takes %zu bytes in this PTX, and %zu in the model of it", name, bytes, f->desc.arg_bytes);
    return CUDA_ERROR_INVALID_PTX;
}

static bool knows_any(const char *text)
{
    char name[128];
    for (const char *p = text; (p = next_entry(p, name, sizeof(name)));)
        if (model_of(name))
            return true;
    return false;
}

/* ---- the calls ---- */

static void forget_locked(struct module *m)
{
    for (struct function *f = functions; f; f = f->next)
        if (f->module == m) {
            if (f->handle)
                sg_handle_drop_locked(f->handle);
            f->module = NULL;
        }
    sg_handle_drop_locked(m->handle);
    free(m);
}

/* Code is put on the device, for which drivers may wait for all that the context has to do. */
static CUresult load_locked(CUmodule *module, const char *text)
{
    CUresult rc = CUDA_SUCCESS;
    struct sg_ctx *ctx = sg_current_locked(&rc);
    char name[128];

    if (!ctx || (rc = sg_capture_unsafe_locked()) || (rc = sg_ctx_sync_locked(ctx)))
        return rc;
    struct module *m = calloc(1, sizeof(*m));
    if (!m)
        abort();
    m->ctx = sg_root(ctx)->id;
    m->handle = sg_handle_new_locked(SG_MODULE, m);
    for (const char *p = text; !rc && (p = next_entry(p, name, sizeof(name)));)
        rc = add_locked(m, name, p);
    if (rc)
        forget_locked(m);
    else
        *module = m->handle;
    return rc;
}

static CUresult load(CUmodule *module, const void *image)
{
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_ptx(image) || for_a_newer_device(image) || !knows_any(image))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    sg_acquire();
    CUresult rc = load_locked(module, image);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    SG_ENTER(cuModuleLoadData);
    return load(module, image);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                    void **optionValues)
{
    SG_ENTER(cuModuleLoadDataEx);
    return numOptions && (!options || !optionValues) ? CUDA_ERROR_INVALID_VALUE : load(module, image);
}

/* A module belongs to its context. */
static struct module *module_locked(CUmodule handle, struct sg_ctx **ctx, CUresult *rc)
{
    *ctx = sg_current_locked(rc);
    struct module *m = *ctx ? sg_handle_get_locked(SG_MODULE, handle) : NULL;

    if (*ctx && !m)
        *rc = CUDA_ERROR_INVALID_HANDLE;
    if (m && m->ctx != sg_root(*ctx)->id) {
        sg_misuse("module %p used outside of its context", (void *)handle);
        *rc = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    return m;
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
    CUresult rc = CUDA_SUCCESS;
    struct sg_ctx *ctx;

    SG_ENTER(cuModuleUnload);
    sg_acquire();
    struct module *m = module_locked(hmod, &ctx, &rc);
    if (m && !(rc = sg_capture_unsafe_locked()) && !(rc = sg_ctx_sync_locked(ctx)))
        forget_locked(m);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    CUresult rc = CUDA_SUCCESS;
    struct sg_ctx *ctx;
    struct function *f = NULL;

    SG_ENTER(cuModuleGetFunction);
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct module *m = module_locked(hmod, &ctx, &rc);
    for (f = m ? functions : NULL; f && (f->module != m || strcmp(f->name, name)); f = f->next)
        ;
    if (f) {
        if (!f->handle)
            f->handle = sg_handle_new_locked(SG_FUNC, &f->desc);
        *hfunc = f->handle;
    } else if (m) {
        rc = CUDA_ERROR_NOT_FOUND;
    }
    sg_release();
    return rc;
}

static struct function *function_locked(const struct softgpu_kernel_desc *desc)
{
    struct function *f = functions;
    while (f && &f->desc != desc)
        f = f->next;
    return f;
}

CUresult sg_function_load(CUfunction function)
{
    CUresult rc = CUDA_SUCCESS;

    sg_acquire();
    const struct softgpu_kernel_desc *desc = sg_handle_get_locked(SG_FUNC, function);
    struct sg_ctx *ctx = desc && sg_module_has_locked(desc) ? sg_current_locked(&rc) : NULL;
    if (!desc || (ctx && !sg_module_fits_locked(desc, ctx)))
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (ctx && sg_module_first_use_locked(desc))
        rc = sg_ctx_sync_locked(ctx);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    SG_ENTER(cuFuncLoad);
    return sg_function_load(function);
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SG_ENTER(cuFuncIsLoaded);
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct softgpu_kernel_desc *desc = sg_handle_get_locked(SG_FUNC, function);
    const struct function *f = desc ? function_locked(desc) : NULL;
    if (desc)
        *state = f && !f->loaded ? CU_FUNCTION_LOADING_STATE_UNLOADED : CU_FUNCTION_LOADING_STATE_LOADED;
    sg_release();
    return desc ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- for launch.c ---- */

CUresult sg_module_launch_locked(const struct softgpu_kernel_desc *desc, const CUDA_KERNEL_NODE_PARAMS *p)
{
    const struct function *f = function_locked(desc);

    if (!f)
        return CUDA_SUCCESS;
    if (!f->model)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if ((unsigned long)p->blockDimX * p->blockDimY * p->blockDimZ > f->threads)
        return CUDA_ERROR_INVALID_VALUE;
    const char *wrong = p->kernelParams && p->kernelParams[0] ? f->model->wrong(p->kernelParams[0]) : NULL;
    if (wrong)
        sg_misuse("%s: %s", f->name, wrong);
    return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool sg_module_fits_locked(const struct softgpu_kernel_desc *desc, const struct sg_ctx *ctx)
{
    const struct function *f = function_locked(desc);
    return !f || (f->module && f->module->ctx == sg_root(ctx)->id);
}

bool sg_module_first_use_locked(const struct softgpu_kernel_desc *desc)
{
    struct function *f = function_locked(desc);
    bool first = f && !f->loaded;
    if (first)
        f->loaded = true;
    return first;
}

bool sg_module_has_locked(const struct softgpu_kernel_desc *desc)
{
    return function_locked(desc) != NULL;
}

bool sg_module_gone_locked(const struct softgpu_kernel_desc *desc)
{
    const struct function *f = function_locked(desc);
    return f && !f->module;
}
