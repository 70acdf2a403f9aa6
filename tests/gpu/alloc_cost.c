/* What a pair of cuMemAlloc and cuMemFree costs, by size: median and 99th percentile in microseconds, with nothing
 * queued. Run it without and with slipring (SLIPRING_ALLOC=all) to compare. Plain driver calls, found with dlopen.
 *
 * usage: alloc_cost [ROUNDS]
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemsetD8)                                                                                                      \
    X(cuCtxSynchronize)

static struct {
#define FIELD_(fn) __typeof__(&fn) fn;
#define FIELD(fn) FIELD_(fn)
    FUNCTIONS(FIELD)
} cu;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult r_ = (call);                                                                                          \
        if (r_ != CUDA_SUCCESS) {                                                                                      \
            fprintf(stderr, "%s: CUDA error %d\n", #call, (int)r_);                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void load(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        exit(77);
    }
#define TEXT_(fn) #fn
#define TEXT(fn) TEXT_(fn)
#define LOAD_(fn) cu.fn = (__typeof__(cu.fn))dlsym(lib, TEXT(fn));
#define LOAD(fn) LOAD_(fn)
    FUNCTIONS(LOAD)
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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
    load();
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
