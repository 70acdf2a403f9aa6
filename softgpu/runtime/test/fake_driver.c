/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 with one device whose functions can only be had from cuGetProcAddress_v2. */
#include "look_up.h"

#include <cuda.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct look_ups look_ups;

static CUresult fake_init(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fake_version(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static CUresult fake_count(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

static void *function_for(const char *symbol)
{
    if (strcmp(symbol, "cuInit") == 0)
        return (void *)(uintptr_t)fake_init;
    if (strcmp(symbol, "cuDriverGetVersion") == 0)
        return (void *)(uintptr_t)fake_version;
    if (strcmp(symbol, "cuDeviceGetCount") == 0)
        return (void *)(uintptr_t)fake_count;
    return NULL;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    if (look_ups.count < MAX_LOOK_UPS) {
        struct look_up *entry = &look_ups.asked[look_ups.count++];
        strncpy(entry->symbol, symbol, sizeof(entry->symbol) - 1);
        entry->version = version;
        entry->flags = flags;
    }
    *function = function_for(symbol);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT const struct look_ups *fakeLookUps(void);
EXPORT const struct look_ups *fakeLookUps(void)
{
    return &look_ups;
}
