/* SPDX-License-Identifier: Apache-2.0 */
/* Finding entry points, devices' identity, and injected faults. */
#define CUDA_ENABLE_DEPRECATED
#include "test_util.h"
#include <dlfcn.h>

TestSuite(procaddr, .timeout = 30);

static void *lib_symbol(const char *name)
{
    void *p = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    cr_assert(p, "%s is not exported", name);
    return p;
}

static void expect_symbol(const char *base, int version, cuuint64_t flags, const char *symbol)
{
    CUdriverProcAddressQueryResult st;
    void *p = (void *)1;
    OK(cuGetProcAddress(base, &p, version, flags, &st));
    cr_assert_eq(p, symbol ? lib_symbol(symbol) : NULL, "%s at %d with flags %d is not %s", base, version, (int)flags,
                 symbol ? symbol : "missing");
    cr_assert_eq(st == CU_GET_PROC_ADDRESS_SUCCESS, symbol != NULL);
}

Test(procaddr, version_and_stream_flag_select_the_symbol)
{
    cuuint64_t pt = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult st;
    void *p;
    expect_symbol("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
    expect_symbol("cuMemAlloc", 3020, legacy, "cuMemAlloc_v2");
    expect_symbol("cuMemcpyAsync", 12000, legacy, "cuMemcpyAsync");
    expect_symbol("cuMemcpyAsync", 12000, pt, "cuMemcpyAsync_ptsz");
    expect_symbol("cuMemcpyHtoD", 12000, pt, "cuMemcpyHtoD_v2_ptds");
    expect_symbol("cuMemAlloc", 12000, pt, "cuMemAlloc_v2");
    expect_symbol("cuStreamWaitValue32", 11060, 0, "cuStreamWaitValue32");
    expect_symbol("cuStreamWaitValue32", 11070, 0, "cuStreamWaitValue32_v2");
    expect_symbol("cuStreamWaitValue32", 11070, pt, "cuStreamWaitValue32_v2_ptsz");
    expect_symbol("cuCtxCreate", 11040, 0, "cuCtxCreate_v3");
    expect_symbol("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
    expect_symbol("cuStreamGetCaptureInfo", 12030, pt, "cuStreamGetCaptureInfo_v3_ptsz");
    expect_symbol("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    expect_symbol("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
    expect_symbol("cuLaunchKernelEx", 11000, 0, NULL);
    expect_symbol("cuNoSuchThing", 13000, 0, NULL);
    OK(cuGetProcAddress("cuLaunchKernelEx", &p, 11000, 0, &st));
    cr_assert_eq(st, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0, &st));
    cr_assert_eq(st, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    RC(cuGetProcAddress("cuInit", &p, 99000, 0, &st), CUDA_ERROR_INVALID_VALUE);
}

Test(procaddr, device_identity)
{
    CUuuid a, b;
    CUdevice dev;
    char bus[32];
    int n, v;
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 2);
    OK(cuDeviceGetUuid(&a, 0));
    OK(cuDeviceGetUuid(&b, 1));
    cr_assert_arr_neq(a.bytes, b.bytes, 16);
    OK(cuDeviceGetPCIBusId(bus, sizeof(bus), 1));
    OK(cuDeviceGetByPCIBusId(&dev, bus));
    cr_assert_eq(dev, 1);
    OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    cr_assert_eq(v, 1);
    RC(cuDeviceGet(&dev, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDriverGetVersion(&v));
    cr_assert_eq(v, 13000);
}

Test(procaddr, no_visible_device)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    RC(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

Test(procaddr, injected_faults)
{
    CUdeviceptr p[4];
    CUstream s;
    CUevent e;
    setenv("SOFTGPU_FAIL", "cuMemAlloc_v2:3,cuEventCreate:2+,cuStreamCreate:1=999", 1);
    start(0);
    OK(cuMemAlloc(&p[0], 16));
    OK(cuMemAlloc(&p[1], 16));
    RC(cuMemAlloc(&p[2], 16), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p[3], 16));
    OK(cuEventCreate(&e, 0));
    RC(cuEventCreate(&e, 0), CUDA_ERROR_OUT_OF_MEMORY);
    RC(cuEventCreate(&e, 0), CUDA_ERROR_OUT_OF_MEMORY);
    RC(cuStreamCreate(&s, 0), CUDA_ERROR_UNKNOWN);
    OK(cuStreamCreate(&s, 0));
}

Test(procaddr, what_does_not_exist_here_says_so)
{
    CUmodule m;
    CUtexref t;
    const char *name;
    start(0);
    RC(cuModuleLoadData(&m, "image"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    RC(cuTexRefCreate(&t), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGetErrorName(CUDA_ERROR_NO_BINARY_FOR_GPU, &name));
    cr_assert_str_eq(name, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    RC(cuGetErrorName((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
}
