/* SPDX-License-Identifier: Apache-2.0 */
/* What a pair of cuMemAlloc and cuMemFree costs, by size: median and 99th percentile in microseconds, with nothing
 * queued. Run it without and with slipring (SLIPRING_ALLOC=all) to compare. Plain driver calls, found with dlopen.
 *
 * usage: alloc_cost [ROUNDS]
 */
#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemsetD8)                                                                                                      \
    X(cuCtxSynchronize)

#include "driver.h"

static void measure(size_t bytes, int rounds, double *us)
{
    CUdeviceptr p;
    for (int i = -3; i < rounds; i++) { /* the first few are not counted */
        double start = now_us();
        CHECK(cu.cuMemAlloc(&p, bytes));
        CHECK(cu.cuMemFree(p));
        if (i >= 0)
            us[i] = now_us() - start;
    }
    qsort(us, (size_t)rounds, sizeof(*us), ascending);
    printf("| %zu | %.1f | %.1f |\n", bytes >> 20, us[rounds / 2], us[rounds * 99 / 100]);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    double *us = malloc((size_t)(rounds > 0 ? rounds : 1) * sizeof(*us));
    CUdevice device;
    CUcontext ctx;
    if (rounds < 1 || !us)
        return 2;
    load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&ctx, device));
    CHECK(cu.cuCtxSetCurrent(ctx));
    printf("| MiB | median us | p99 us |\n| --- | --- | --- |\n");
    for (size_t mib = 1; mib <= 1024; mib *= 4)
        measure(mib << 20, rounds, us);
    free(us);
    return 0;
}
