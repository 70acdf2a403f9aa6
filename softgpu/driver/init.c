/* SPDX-License-Identifier: Apache-2.0 */
/* cuInit, what every entry point checks first, fork and exit. */
#include "sg.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t sg_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t sg_progress;

static atomic_int initialised, forked, exiting, running;
static __thread int in_kernel;
static __thread const char *forbidden; /* what runs, that must not call CUDA */

bool sg_exiting(void)
{
    return atomic_load(&exiting);
}

int64_t sg_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

CUresult sg_enter(enum sg_entry entry)
{
    if (atomic_load(&forked) || !atomic_load(&initialised))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_load(&exiting))
        return CUDA_ERROR_DEINITIALIZED; /* destructors must not wait for workers that have stopped */
    if (forbidden) {
        sg_misuse("%s calls %s: it must not call CUDA", forbidden, sg_entry_name(entry));
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return sg_fault(entry);
}

/* A child that is forked after cuInit has the tables but none of the worker threads. */
static void in_child(void)
{
    atomic_store(&forked, 1);
}

/* Workers start nothing new once the process exits, and libraries that kernels call (OpenBLAS) are about to shut down.
 */
static void at_exit(void)
{
    if (atomic_load(&forked))
        return;
    atomic_store(&exiting, 1);
    /* Bounded: a host function may wait for a thread that is gone, or be the one that called exit. */
    for (int i = 0; i < 1000 && atomic_load(&running) > in_kernel; i++)
        usleep(2000);
}

void sg_kernel_begin(void)
{
    in_kernel = 1;
    atomic_fetch_add(&running, 1);
}

void sg_kernel_end(void)
{
    atomic_fetch_sub(&running, 1);
    in_kernel = 0;
}

void sg_forbid_calls(const char *where)
{
    forbidden = where;
}

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

/* Profilers: what they do within cuInit, which may be to call it. */
static void inject(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialise)(void) = NULL;
    if (library)
        *(void **)&initialise = dlsym(library, "InitializeInjection");
    if (initialise)
        initialise();
}

CUresult CUDAAPI cuInit(unsigned int Flags)
{
    static int tried; /* under the lock */
    CUresult rc = CUDA_SUCCESS;
    int first = 0;

    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&init_lock);
    if (!atomic_load(&initialised)) {
        sg_config_load();
        if (!tried++) /* what is to fail counts its calls */
            sg_fault_load();
        rc = sg_fault(SG_cuInit);
        if (!rc)
            rc = sg_devices_init();
        if (!rc) {
            sg_race_load();
            pthread_atfork(NULL, NULL, in_child);
            atexit(at_exit);
            atomic_store(&initialised, first = 1);
        }
    } else {
        rc = sg_fault(SG_cuInit);
    }
    pthread_mutex_unlock(&init_lock);
    if (first)
        inject();
    return rc;
}

CUresult CUDAAPI cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = 13000;
    return CUDA_SUCCESS;
}

/* What the stand-ins ask for besides CUDA's own interface. */
int softgpuComputeOff(void);
__attribute__((visibility("default"))) int softgpuComputeOff(void)
{
    return sg_cfg.compute_off;
}

int softgpuNcclBlind(void);
__attribute__((visibility("default"))) int softgpuNcclBlind(void)
{
    return sg_cfg.nccl_blind;
}
