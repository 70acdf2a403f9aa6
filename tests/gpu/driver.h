/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder share: the driver's functions found with dlopen, so that they build without a
 * toolkit's libraries, and a clock.
 *
 * Before it is included, FUNCTIONS(X) lists the functions as X(cuInit) X(...); they are then called as cu.cuInit(...).
 * The headers' macros turn cuMemAlloc into cuMemAlloc_v2, in the field's name as in the looked-up string.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

/* Ends the program with 77 (skipped) where there is no driver, or none that has them all. */
static inline void load_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
#define LOAD_(fn) *(void **)&cu.fn = lib ? dlsym(lib, #fn) : NULL;
#define LOAD(fn) LOAD_(fn)
#define HAVE(fn) &&cu.fn
    FUNCTIONS(LOAD)
    if (lib FUNCTIONS(HAVE))
        return;
    const char *why = dlerror();
    fprintf(stderr, "no CUDA driver: %s\n", why ? why : "functions are missing");
    exit(77);
}

static inline double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
