/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* Every function of the table exists with its present prototype since CUDA 12.3. */
#define SOFTDRV_CUDA_VERSION 12030

static struct softdrv table;
static int table_ok;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

typedef CUresult (*get_proc_t)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static int look_up(get_proc_t get, const char *name, void **out)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *out = NULL;
    CUresult rc = get(name, out, SOFTDRV_CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (rc == CUDA_SUCCESS && *out)
        return 0;
    fprintf(stderr, "softgpu: the driver has no %s (CUresult %d)\n", name, (int)rc);
    return -1;
}

static void load(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        fprintf(stderr, "softgpu: no libcuda.so.1: %s\n", dlerror());
        return;
    }
    get_proc_t get = (get_proc_t)dlsym(lib, "cuGetProcAddress_v2");
    table.kernel_register = (softgpuKernelRegister_t)dlsym(lib, "softgpuKernelRegister");
    table.compute_off = (softgpuComputeOff_t)dlsym(lib, "softgpuComputeOff");
    table.nccl_blind = (softgpuNcclBlind_t)dlsym(lib, "softgpuNcclBlind");
    table.capture_forbids = (softgpuCaptureForbids_t)dlsym(lib, "softgpuCaptureForbids");
    table.misuse = (softgpuMisuse_t)dlsym(lib, "softgpuMisuse");
    if (!get || !table.kernel_register || !table.compute_off || !table.nccl_blind || !table.capture_forbids ||
        !table.misuse) {
        fprintf(stderr, "softgpu: libcuda.so.1 is not the stand-in driver; is LD_LIBRARY_PATH set?\n");
        return;
    }
    int bad = 0;
#define SOFTDRV_LOOK_UP(name) bad |= look_up(get, #name, (void **)&table.name);
    SOFTDRV_FUNCTIONS(SOFTDRV_LOOK_UP)
#undef SOFTDRV_LOOK_UP
    table_ok = !bad && table.cuInit(0) == CUDA_SUCCESS;
}

const struct softdrv *softdrv_get(void)
{
    pthread_once(&table_once, load);
    return table_ok ? &table : NULL;
}

CUresult softdrv_need_context(const struct softdrv *drv, CUcontext *ctx)
{
    CUdevice dev;
    CUresult rc = drv->cuCtxGetCurrent(ctx);
    if (rc != CUDA_SUCCESS || *ctx)
        return rc;
    if ((rc = drv->cuDeviceGet(&dev, 0)) != CUDA_SUCCESS)
        return rc;
    if ((rc = drv->cuDevicePrimaryCtxRetain(ctx, dev)) != CUDA_SUCCESS)
        return rc;
    return drv->cuCtxSetCurrent(*ctx);
}
