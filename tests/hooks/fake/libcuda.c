/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that does nothing but note its arguments: every function of gate.def, whatever its real prototype, as one
 * that takes 14 integers and 8 floating-point numbers, which covers all argument registers and some stack on x86-64 and
 * aarch64. It returns its index in gate.def plus FAKE_BASE, so that two copies can be told apart. Not a software GPU:
 * that is softgpu/. */
#include "fake.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifndef FAKE_BASE
#define FAKE_BASE 0
#endif

static _Thread_local struct fake_call last;

struct fake_call *fake_last(void);
struct fake_call *fake_last(void)
{
    return &last;
}

static int note(int index, FAKE_PARAMS)
{
    uint64_t ints[FAKE_INTS] = {i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13};
    double reals[FAKE_REALS] = {d0, d1, d2, d3, d4, d5, d6, d7};
    last.errno_seen = errno;
    last.calls++;
    last.index = index;
    memcpy(last.ints, ints, sizeof(ints));
    memcpy(last.reals, reals, sizeof(reals));
    return FAKE_BASE + index;
}

#ifdef FAKE_LAUNCH_ONLY /* an old driver, which has one function of the table */
int cuLaunchKernel(FAKE_PARAMS);
int cuLaunchKernel(FAKE_PARAMS)
{
    return note(FAKE_IX_cuLaunchKernel, FAKE_ARGS);
}
#else
#define X(sym, cls, arg, why)                                                                                          \
    int sym(FAKE_PARAMS);                                                                                              \
    int sym(FAKE_PARAMS)                                                                                               \
    {                                                                                                                  \
        return note(FAKE_IX_##sym, FAKE_ARGS);                                                                         \
    }
#include "interpose/gate.def"

/* A form that gate.def does not know, and a known function at an address of its own. */
int cuMemcpyBatchAsync_v9(FAKE_PARAMS);
int cuMemcpyBatchAsync_v9(FAKE_PARAMS)
{
    return note(FAKE_UNKNOWN, FAKE_ARGS);
}

static int second_address(FAKE_PARAMS)
{
    return note(FAKE_SECOND, FAKE_ARGS);
}

/* The rest of what real.def requires, and the block cache. */
#define PLAIN(sym)                                                                                                     \
    int sym(void);                                                                                                     \
    int sym(void)                                                                                                      \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }
PLAIN(cuCtxGetCurrent)
PLAIN(cuCtxPushCurrent_v2)
PLAIN(cuCtxPopCurrent_v2)
PLAIN(cuCtxGetDevice)
PLAIN(cuDeviceGetAttribute)
PLAIN(cuDeviceGetCount)
PLAIN(cuDeviceGetUuid_v2)
PLAIN(cuDeviceGetName)
PLAIN(cuDeviceCanAccessPeer)
PLAIN(cuDevicePrimaryCtxGetState)
PLAIN(cuDevicePrimaryCtxRetain)
PLAIN(cuDeviceTotalMem_v2)
PLAIN(cuDeviceGet)
PLAIN(cuGetErrorName)
PLAIN(cuMemHostRegister_v2)
PLAIN(cuMemHostGetDevicePointer_v2)
PLAIN(cuIpcOpenMemHandle_v2)
PLAIN(cuStreamCreateWithPriority)
PLAIN(cuCtxGetStreamPriorityRange)
PLAIN(cuStreamIsCapturing)
PLAIN(cuThreadExchangeStreamCaptureMode)
PLAIN(cuEventCreate)
PLAIN(cuStreamGetCaptureInfo) /* a form that is not gated, of a function whose newer ones are */

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

/* Linked with -Bsymbolic, so these are this library's own functions even when another library hooks the names. */
static const struct {
    const char *name;
    void *function;
} table[] = {
#define X(sym, cls, arg, why) {#sym, (void *)sym},
#include "interpose/gate.def"
    {"cuGetProcAddress", (void *)cuGetProcAddress},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2},
    {"cuDeviceGet", (void *)cuDeviceGet},
    {"cuStreamGetCaptureInfo", (void *)cuStreamGetCaptureInfo},
};

static void *lookup(const char *symbol, const char *form)
{
    char name[128];
    snprintf(name, sizeof(name), "%s%s", symbol, form);
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}

/* As the driver: versions from 3020 on find the _v2 forms, flag 2 the per-thread ones where there are any. */
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
    static const char *const forms[] = {"_v2_ptsz", "_v2_ptds", "_ptsz", "_ptds", "_v2", ""};
    void *found = NULL;
    if (version > 90000 && strcmp(symbol, "cuMemcpyBatchAsync") == 0)
        found = (void *)cuMemcpyBatchAsync_v9;
    if (strcmp(symbol, "cuStreamAddCallback") == 0)
        found = (void *)second_address;
    for (unsigned i = 0; i < sizeof(forms) / sizeof(forms[0]) && !found; i++) {
        bool v2 = strstr(forms[i], "_v2"), per_thread = strstr(forms[i], "_pt");
        if ((version >= 3020 || !v2) && ((flags & 2) || !per_thread))
            found = lookup(symbol, forms[i]);
    }
    *pfn = found;
    if (status)
        *status = found ? 0 : 1;
    return found ? 0 : 500;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}
#endif
