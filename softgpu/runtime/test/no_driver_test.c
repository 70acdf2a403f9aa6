/* SPDX-License-Identifier: Apache-2.0 */
/* The static runtime in a process that can not find a driver. */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

static void skip_with_a_driver(void)
{
    if (dlopen("libcuda.so.1", RTLD_NOW))
        cr_skip_test("this machine has a driver");
}

Test(softgpu_runtime_static, says_that_there_is_no_driver, .init = skip_with_a_driver)
{
    int count = 7, version = 7;
    cr_assert_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cr_assert_eq(count, 0);
    cr_assert_eq(cudaGetLastError(), cudaErrorInsufficientDriver);
    cr_assert_eq(cudaDriverGetVersion(&version), cudaSuccess);
    cr_assert_eq(version, 0);
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
    cr_assert_str_eq(cudaGetErrorString(cudaErrorNoDevice), "cudaErrorNoDevice");
    cr_assert_eq(cudaGetLastError(), cudaSuccess, "asking for a text is no failure");
}
