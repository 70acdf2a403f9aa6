/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the stand-in driver. Each Criterion test runs in its own process, so each starts the driver.
 */
#ifndef SOFTGPU_TEST_UTIL_H
#define SOFTGPU_TEST_UTIL_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OK(call) cr_assert_eq((call), CUDA_SUCCESS, "%s", #call)
/* Evaluates the call once and shows the code that it returned. */
#define RC(call, expected)                                                                                             \
    do {                                                                                                               \
        CUresult call_rc_ = (call);                                                                                    \
        cr_assert_eq(call_rc_, expected, "%s returned %d, expected " #expected, #call, (int)call_rc_);                 \
    } while (0)

static inline CUcontext start(int device)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, device));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/* Sends reports to a private file. Call before cuInit. */
static char report_path[64];
static inline void watch_reports(void)
{
    snprintf(report_path, sizeof(report_path), "/tmp/softgpu-report-%d", (int)getpid());
    unlink(report_path);
    setenv("SOFTGPU_REPORT", report_path, 1);
}

static inline bool reported(const char *text)
{
    static char all[65536];
    FILE *f = fopen(report_path, "r");
    size_t n = f ? fread(all, 1, sizeof(all) - 1, f) : 0;
    all[n] = 0;
    if (f)
        fclose(f);
    return strstr(all, text) != NULL;
}

static inline void expect_report(const char *text)
{
    cr_assert(reported(text), "no report with: %s", text);
    unlink(report_path);
}

static inline void expect_no_report(void)
{
    cr_assert(!reported("softgpu: misuse:"), "unexpected misuse report");
}

static inline double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A word that streams can wait on and the host can write. */
static inline uint32_t *flag_word(CUdeviceptr *dev)
{
    void *p;
    OK(cuMemHostAlloc(&p, 4096, 0));
    memset(p, 0, 4096);
    OK(cuMemHostGetDevicePointer(dev, p, 0));
    return p;
}

static inline void set_flag(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Memory that a forked child shares, for results and hand-shakes. */
static inline void *shared_page(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(p, MAP_FAILED);
    return p;
}

static inline void await(const volatile int *word, int value)
{
    double end = seconds() + 20;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        cr_assert(seconds() < end, "the other process did not answer");
        usleep(500);
    }
}

static inline void post(volatile int *word, int value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void join_child(pid_t pid)
{
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child failed: status %#x", status);
}

#endif
