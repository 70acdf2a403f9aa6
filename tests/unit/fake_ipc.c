/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_ipc.h"

#include <fcntl.h>
#include <string.h>

#define FIRST ((CUdeviceptr)1 << 40)

struct fake_ipc drv;

static bool fails(const char *name)
{
    return drv.fail && strcmp(drv.fail, name) == 0;
}

static void call(void (*hook)(void))
{
    if (hook)
        hook();
}

static CUresult attribute(void *out, CUpointer_attribute what, CUdeviceptr p)
{
    (void)p;
    if (what == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)out = drv.base;
    else if (what == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)out = drv.reserved;
    else
        *(int *)out = what == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0 : drv.legacy;
    return CUDA_SUCCESS;
}

static CUresult range(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    const size_t piece = (p - drv.base) / drv.size;
    call(drv.while_range);
    if (p < drv.base || piece >= drv.pieces)
        return CUDA_ERROR_NOT_FOUND;
    *base = drv.base + piece * drv.size;
    *size = drv.size;
    return CUDA_SUCCESS;
}

static CUresult get_handle(CUipcMemHandle *h, CUdeviceptr p)
{
    drv.gets++;
    memset(h, 0, sizeof *h);
    memcpy(h, &p, sizeof p);
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *out, CUipcMemHandle h, unsigned flags)
{
    (void)h;
    (void)flags;
    *out = FIRST + (CUdeviceptr)drv.opens++ * M;
    call(drv.while_open);
    return drv.fail_open ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

static CUresult close_handle(CUdeviceptr p)
{
    (void)p;
    drv.closes++;
    call(drv.while_close);
    return drv.fail_close ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult retain(CUmemGenericAllocationHandle *h, void *p)
{
    (void)p;
    *h = 7;
    call(drv.while_retain);
    if (fails("retain"))
        return CUDA_ERROR_INVALID_VALUE;
    drv.retains++;
    return CUDA_SUCCESS;
}

static CUresult properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle h)
{
    (void)h;
    *prop = (CUmemAllocationProp){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .requestedHandleTypes = (CUmemAllocationHandleType)drv.types};
    return CUDA_SUCCESS;
}

static CUresult export_fd(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type,
                          unsigned long long f)
{
    (void)h;
    (void)type;
    (void)f;
    if (fails("export"))
        return CUDA_ERROR_UNKNOWN;
    *(int *)out = open("/dev/null", O_RDONLY);
    return CUDA_SUCCESS;
}

static CUresult import_fd(CUmemGenericAllocationHandle *h, void *fd, CUmemAllocationHandleType type)
{
    (void)fd;
    (void)type;
    *h = 9;
    if (fails("import") || (fails("import again") && drv.retains > drv.releases))
        return CUDA_ERROR_UNKNOWN;
    drv.retains++;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle h)
{
    (void)h;
    drv.releases++;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *p, size_t size, size_t align, CUdeviceptr at, unsigned long long flags)
{
    (void)size;
    (void)align;
    (void)at;
    (void)flags;
    if (fails("reserve"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = FIRST * 2 + (CUdeviceptr)drv.reserves++ * M;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr p, size_t size)
{
    (void)p;
    (void)size;
    drv.frees++;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
    (void)p;
    (void)size;
    (void)offset;
    (void)h;
    (void)flags;
    if (fails("map") || (fails("map again") && drv.maps > drv.unmaps))
        return CUDA_ERROR_UNKNOWN;
    drv.maps++;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr p, size_t size)
{
    (void)p;
    drv.unmaps += (int)(size / M);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t n)
{
    (void)p;
    (void)size;
    (void)desc;
    (void)n;
    return fails("access") ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *flags, const CUmemLocation *where, CUdeviceptr p)
{
    (void)where;
    (void)p;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

void fake_ipc_start(void)
{
    fake_start("collective", "1G", 1000 * M);
    drv.legacy = 1;
    drv.types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    drv.base = FIRST * 4;
    drv.size = 4 * M;
    drv.pieces = 1;
    drv.reserved = drv.size;
    slr_real.cuPointerGetAttribute = attribute;
    slr_real.cuMemGetAddressRange = range;
    slr_real.cuIpcGetMemHandle = get_handle;
    slr_real.cuIpcOpenMemHandle = open_handle;
    slr_real.cuIpcCloseMemHandle = close_handle;
    slr_real.cuMemRetainAllocationHandle = retain;
    slr_real.cuMemGetAllocationPropertiesFromHandle = properties;
    slr_real.cuMemExportToShareableHandle = export_fd;
    slr_real.cuMemImportFromShareableHandle = import_fd;
    slr_real.cuMemRelease = release;
    slr_real.cuMemAddressReserve = reserve;
    slr_real.cuMemAddressFree = address_free;
    slr_real.cuMemMap = map;
    slr_real.cuMemUnmap = unmap;
    slr_real.cuMemSetAccess = set_access;
    slr_real.cuMemGetAccess = get_access;
}
