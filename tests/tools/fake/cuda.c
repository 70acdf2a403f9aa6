/* SPDX-License-Identifier: Apache-2.0 */
/* A driver with devices and nothing else, for `slipring doctor`: what the software GPU can not be. Many functions that
 * slipring needs are missing on purpose.
 *
 * FAKE_DEVICES (2), FAKE_MIG: 1: they are parts of GPUs; FAKE_MODE: compute mode; FAKE_MEMOPS, FAKE_ACCESS: 0 is without; FAKE_INIT: what cuInit returns;
 * FAKE_CRASH: the function that ends the process (cuInit, cuDeviceGetCount). */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int from_environment(const char *name, int fallback)
{
    const char *value = getenv(name);
    return value && *value ? atoi(value) : fallback;
}

static void crash_in(const char *function)
{
    const char *where = getenv("FAKE_CRASH");
    if (where && strcmp(where, function) == 0)
        abort();
}

EXPORT CUresult cuInit(unsigned flags)
{
    (void)flags;
    crash_in("cuInit");
    return (CUresult)from_environment("FAKE_INIT", 0);
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = 12040;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    crash_in("cuDeviceGetCount");
    *count = from_environment("FAKE_DEVICES", 2);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)len, "fake device%s", from_environment("FAKE_MIG", 0) ? " MIG 1g.10gb" : "");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = (size_t)8 << 30;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
    snprintf(id, (size_t)len, "0000:%02x:00.0", 16 + device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
        *value = from_environment("FAKE_MODE", CU_COMPUTEMODE_DEFAULT);
    else if (attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
        *value = from_environment("FAKE_MEMOPS", 1);
    else
        *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 7 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    (void)device;
    (void)peer;
    *can = from_environment("FAKE_ACCESS", 1);
    return CUDA_SUCCESS;
}
