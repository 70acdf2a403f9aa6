/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime reaches the driver as the real one does: only through cuGetProcAddress_v2, with versions and flags. The
 * expectations were observed with CUDA 13.0's libcudart on a driver like the fake one. */
#include "look_up.h"

#include <criterion/criterion.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <string.h>

static const struct look_ups *look_ups(void)
{
    fakeLookUps_t get;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    cr_assert_not_null(driver, "the runtime opens the driver itself");
    *(void **)&get = dlsym(driver, "fakeLookUps");
    cr_assert_not_null(get, "not the fake driver");
    return get();
}

static int asked(const char *symbol, int version, unsigned long long flags)
{
    const struct look_ups *all = look_ups();
    for (unsigned i = 0; i < all->count; i++)
        if (strcmp(all->asked[i].symbol, symbol) == 0 && all->asked[i].version == version &&
            all->asked[i].flags == flags)
            return 1;
    return 0;
}

Test(softgpu_runtime_look_up, nothing_before_the_first_call)
{
    cr_assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "libcuda.so.1 must not be a DT_NEEDED");
}

Test(softgpu_runtime_look_up, all_at_the_first_call_and_never_again)
{
    int count = 0;
    cr_assert_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_assert_eq(count, 1);
    const unsigned first = look_ups()->count;
    cr_assert_gt(first, 100);
    cr_assert_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_assert_eq(look_ups()->count, first);
}

Test(softgpu_runtime_look_up, versions_and_flags)
{
    const unsigned long long per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int count;
    cr_assert_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_assert_str_eq(look_ups()->asked[0].symbol, "", "the real runtime's first question");
    cr_assert(asked("cuGetProcAddress", 12000, 0));
    cr_assert(asked("cuMemAlloc", 3020, 0));
    cr_assert_not(asked("cuMemAlloc", 3020, per_thread));
    cr_assert(asked("cuMemcpyAsync", 4000, 0));
    cr_assert(asked("cuMemcpyAsync", 7000, per_thread));
    cr_assert(asked("cuStreamBeginCapture", 10010, per_thread));
    cr_assert(asked("cuEventElapsedTime", 12080, 0));
}

Test(softgpu_runtime_look_up, a_function_that_the_driver_lacks_is_an_error)
{
    int value;
    cr_assert_eq(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0), cudaErrorCallRequiresNewerDriver);
    cr_assert_eq(cudaGetLastError(), cudaErrorCallRequiresNewerDriver);
}
