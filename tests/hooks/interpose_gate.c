/* SPDX-License-Identifier: Apache-2.0 */
/* Every gated function, found in every way, without and with something pending: the call reaches the real function with
 * all its arguments, and what is joined before is what gate.def says. Run under the recording library, with the fake
 * driver on the library path. */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "base/status.h"
#include "check.h"
#include "fake/fake.h"
#include "fake/recorder.h"

enum class {
    STREAM,
    LAUNCH_CONFIG,
    RECORD,
    RECORD_FLAGS,
    WAIT,
    EVENT_END,
    GRAPH,
    ALLOC,
    FREE,
    QUERY,
    CAPTURE_INFO,
    LEGACY,
    ALL,
    CONTEXT,
    GREEN,
    COPY,
    COPY_2D,
    COPY_3D,
    COPY_3D_PEER,
    STREAM_COPY,
    NONE
};
enum why { OP = SLR_R_JOIN_OTHER_OP, HOST = SLR_R_JOIN_HOST_SYNC };

static const struct row {
    const char *name;
    enum class class;
    int arg;
    enum why why;
} rows[] = {
#define X(sym, cls, arg, why) {#sym, cls, arg, why},
#include "interpose/gate.def"
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static slr_test_pending_t set_pending;
static slr_test_joins_t joins;
static slr_test_guard_t set_guard;
static slr_test_take_t set_take;
static fake_last_t last_call;
static void *driver;
static CUlaunchConfig config;
static char nowhere[1024];
static bool default_stream; /* streams are given as 0 */

typedef int (*proc_v1_t)(const char *, void **, int, uint64_t);
typedef int (*proc_v2_t)(const char *, void **, int, uint64_t, int *);

static void *exported(const char *name)
{
    void *p = dlsym(RTLD_DEFAULT, name);
    CHECK_FOR(name, p != NULL);
    return p;
}

static uint64_t value(const struct row *row, int i)
{
    if (i == row->arg && row->class == LAUNCH_CONFIG)
        return (uint64_t)(uintptr_t)&config;
    if (i == 0 && row->class > COPY && row->class < NONE) /* a structure, of a copy between nothing and nothing */
        return (uint64_t)(uintptr_t)&nowhere;
    if (i == row->arg && default_stream && row->class < LEGACY && row->class != EVENT_END)
        return 0;
    return 0x1111111100000000u * (unsigned)(i + 1) + 0xabcd0000u + (unsigned)i;
}

/* Stands behind the gate in the driver's stead whatever the settings are (interpose/alloc.c, event.c, graph.c), and
 * passes on what it knows of: a device, a context, a stream, a graph. */
static bool behind_the_gate(const char *name)
{
    return strncmp(name, "cuStreamDestroy", 15) == 0 || strncmp(name, "cuCtxDestroy", 12) == 0 ||
           strcmp(name, "cuGreenCtxDestroy") == 0 || strncmp(name, "cuDevicePrimaryCtxRelease", 25) == 0 ||
           strncmp(name, "cuDevicePrimaryCtxReset", 23) == 0 || strncmp(name, "cuStreamBegin", 13) == 0 ||
           strncmp(name, "cuStreamEndCapture", 18) == 0 || strcmp(name, "cuMemExportToShareableHandle") == 0 ||
           strcmp(name, "cuIpcGetMemHandle") == 0 || strcmp(name, "cuCtxEnablePeerAccess") == 0 ||
           strcmp(name, "cuCtxDisablePeerAccess") == 0 || strncmp(name, "cuGraph", 7) == 0 ||
           strcmp(name, "cuInit") == 0;
}

/* Calls the function with values that differ by argument and checks that they arrived. */
static void call(const struct row *row, fake_fn fn, int expected)
{
    uint64_t v[FAKE_INTS];
    struct fake_call *seen = last_call();
    int calls = seen->calls;
    for (int i = 0; i < FAKE_INTS; i++)
        v[i] = value(row, i);
    errno = EXDEV;
    int r = fn(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], 0.5, 1.5, 2.5,
               3.5, 4.5, 5.5, 6.5, 7.5);
    CHECK_FOR(row->name, r == expected);
    CHECK_FOR(row->name, seen->calls == calls + 1 && seen->errno_seen == EXDEV);
    if (behind_the_gate(row->name)) {
        CHECK_FOR(row->name, (uint32_t)seen->ints[0] == (uint32_t)v[0]);
        return;
    }
    CHECK_FOR(row->name, memcmp(seen->ints, v, sizeof(v)) == 0);
    for (int i = 0; i < FAKE_REALS; i++)
        CHECK_FOR(row->name, seen->reals[i] == i + 0.5);
}

/* The stubs' unwind information leads through them to this program. */
static void check_backtrace(const struct row *row, const struct recorded_join *j)
{
    Dl_info here, frame;
    int found = 0;
    CHECK(dladdr((void *)&rows, &here));
    for (int i = 0; i < j->frames; i++)
        found += dladdr(j->frame[i], &frame) && frame.dli_fbase == here.dli_fbase;
    CHECK_FOR(row->name, found >= 1);
}

static bool records(enum class class)
{
    return class == RECORD || class == RECORD_FLAGS;
}

static bool of_thread(const char *name)
{
    const char *form = strrchr(name, '_');
    return form && (strcmp(form, "_ptsz") == 0 || strcmp(form, "_ptds") == 0);
}

static CUstream stream_of(const struct row *row)
{
    const CUstream none = of_thread(row->name) ? CU_STREAM_PER_THREAD : NULL;
    if (row->class == LEGACY)
        return none;
    const CUstream stream = row->class == LAUNCH_CONFIG ? config.hStream : (CUstream)(uintptr_t)value(row, row->arg);
    return stream ? stream : none;
}

static enum slr_act act_of(enum class class)
{
    static const enum slr_act acts[NONE + 1] = {[STREAM] = SLR_ACT_OPERATION,  [LAUNCH_CONFIG] = SLR_ACT_OPERATION,
                                                [RECORD] = SLR_ACT_RECORD,     [RECORD_FLAGS] = SLR_ACT_RECORD,
                                                [WAIT] = SLR_ACT_WAIT,         [EVENT_END] = SLR_ACT_EVENT_END,
                                                [GRAPH] = SLR_ACT_OPERATION,   [ALLOC] = SLR_ACT_ALLOC,
                                                [FREE] = SLR_ACT_FREE,         [QUERY] = SLR_ACT_QUERY,
                                                [CAPTURE_INFO] = SLR_ACT_NEXT, [LEGACY] = SLR_ACT_OPERATION,
                                                [ALL] = SLR_ACT_HOST,          [COPY] = SLR_ACT_HOST,
                                                [COPY_2D] = SLR_ACT_HOST,      [COPY_3D] = SLR_ACT_HOST,
                                                [COPY_3D_PEER] = SLR_ACT_HOST, [STREAM_COPY] = SLR_ACT_OPERATION,
                                                [CONTEXT] = SLR_ACT_HOST,      [GREEN] = SLR_ACT_HOST,
                                                [NONE] = SLR_ACT_NONE};
    return acts[class];
}

static void check_event(const struct row *row, const struct slr_observed *o)
{
    CHECK_FOR(row->name, (uint64_t)(uintptr_t)o->event == value(row, row->class == WAIT ? 1 : 0));
    CHECK_FOR(row->name, o->flags == (row->class == RECORD ? 0 : (unsigned)value(row, 2)));
}

static void check_join(const struct row *row, int calls_before)
{
    const struct recorded_join *j = joins();
    const struct slr_observed *o = &j->seen;
    if (row->class == NONE || row->class == EVENT_END) {
        CHECK_FOR(row->name, j->calls == calls_before);
        return;
    }
    CHECK_FOR(row->name, j->calls == calls_before + 1);
    CHECK_FOR(row->name, o->act == act_of(row->class));
    CHECK_FOR(row->name, strcmp(o->who, row->name) == 0);
    CHECK_FOR(row->name, row->class != FREE || o->memory == value(row, 0));
    CHECK_FOR(row->name, (uint64_t)(uintptr_t)o->ctx == (row->class == CONTEXT ? value(row, row->arg) : 0));
    CHECK_FOR(row->name, (uint64_t)(uintptr_t)o->green == (row->class == GREEN ? value(row, row->arg) : 0));
    CHECK_FOR(row->name, (int)o->why == (int)row->why);
    CHECK_FOR(row->name, j->guard == 1);
    check_backtrace(row, j);
    if (row->class == COPY)
        CHECK_FOR(row->name, o->end[0] == value(row, 0) && o->end[1] == value(row, row->arg));
    CHECK_FOR(row->name, o->bytes == (row->class == STREAM_COPY ? value(row, 2) : 0));
    if (row->class == STREAM_COPY)
        CHECK_FOR(row->name, o->end[0] == value(row, 0) && o->end[1] == value(row, 1));
    if (records(row->class) || row->class == WAIT)
        check_event(row, o);
    if (o->act != SLR_ACT_HOST)
        CHECK_FOR(row->name, o->stream == stream_of(row));
}

/* Joined by the plugin in the driver's stead: the answer is the plugin's, and the driver is not called. */
static void check_taken(const struct row *row, fake_fn fn)
{
    int driver_calls = last_call()->calls;
    set_take(77);
    CHECK_FOR(row->name, fn(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 0, 0, 0, 0, 0, 0, 0) == 77);
    CHECK_FOR(row->name, last_call()->calls == driver_calls);
    set_take(-1);
}

static void check_row(int i)
{
    const struct row *row = &rows[i];
    fake_fn fn = (fake_fn)exported(row->name);
    CHECK_FOR(row->name, dlsym(driver, row->name) == (void *)fn);
    CHECK_FOR(row->name, dlerror() == NULL);
    CHECK_FOR(row->name, dlvsym(driver, row->name, "libcuda.so.1") == (void *)fn);

    int before = joins()->calls, ended = joins()->ended, unseen = joins()->unseen;
    bool graph = row->class == GRAPH, ends = row->class == EVENT_END;
    set_pending(0);
    call(row, fn, i);
    CHECK_FOR(row->name, joins()->calls == before && joins()->ended == ended && joins()->unseen == unseen);

    set_pending(2);
    call(row, fn, i);
    check_join(row, before);
    CHECK_FOR(row->name, joins()->ended == ended + ends && joins()->unseen == unseen + graph);
    CHECK_FOR(row->name, !ends || joins()->event == value(row, row->arg));
    if (records(row->class) || row->class == WAIT || row->class == QUERY)
        check_taken(row, fn);
    before = joins()->calls;
    default_stream = true;
    config.hStream = NULL;
    call(row, fn, i);
    check_join(row, before);
    default_stream = false;
    config.hStream = (CUstream)(uintptr_t)0x5eed5eed5eed;

    /* What slipring's own callees do with events is not looked at, but not forgotten. */
    before = joins()->calls, ended = joins()->ended, unseen = joins()->unseen;
    set_guard(1);
    call(row, fn, i);
    set_guard(0);
    CHECK_FOR(row->name, joins()->calls == before && joins()->ended == ended);
    CHECK_FOR(row->name, joins()->unseen == unseen + graph + records(row->class) + ends);
    set_pending(0);
}

static void check_proc_is(const char *symbol, int version, uint64_t flags, const char *expected)
{
    proc_v1_t v1 = (proc_v1_t)exported("cuGetProcAddress");
    proc_v2_t v2 = (proc_v2_t)exported("cuGetProcAddress_v2");
    void *p1 = NULL, *p2 = NULL;
    int status = -1;
    CHECK_FOR(expected, v1(symbol, &p1, version, flags) == 0 && v2(symbol, &p2, version, flags, &status) == 0);
    CHECK_FOR(expected, p1 == exported(expected) && p2 == p1 && status == 0);
}

static void check_get_proc_address(void)
{
    check_proc_is("cuMemcpyHtoD", 2000, 0, "cuMemcpyHtoD");
    check_proc_is("cuMemcpyHtoD", 3020, 0, "cuMemcpyHtoD_v2");
    check_proc_is("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuMemcpyHtoD_v2_ptds");
    check_proc_is("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "cuLaunchKernel");
    check_proc_is("cuLaunchKernel", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuLaunchKernel_ptsz");
    check_proc_is("cuLaunchKernelEx", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "cuLaunchKernelEx_ptsz");
    check_proc_is("cuGetProcAddress", 13000, 0, "cuGetProcAddress_v2");
    check_proc_is("cuGetProcAddress", 3000, 0, "cuGetProcAddress");

    proc_v2_t v2 = (proc_v2_t)exported("cuGetProcAddress_v2");
    void *p = &p;
    int status = -1;
    CHECK(v2("cuNoSuchFunction", &p, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND && !p && status == 1);
    CHECK(v2("cuDeviceGet", &p, 13000, 0, &status) == 0 && p == dlsym(driver, "cuDeviceGet"));

    /* cudart asks for all forms. The first one needs no gate, and is the driver's own. */
    check_proc_is("cuStreamGetCaptureInfo", 13000, 0, "cuStreamGetCaptureInfo_v2");
    Dl_info where;
    CHECK(v2("cuStreamGetCaptureInfo", &p, 3000, 0, &status) == 0 && dlsym(driver, "cuStreamGetCaptureInfo") == p);
    CHECK(dladdr(p, &where) && strstr(where.dli_fname, "libcuda.so"));
}

/* Forms that the table lacks are gated all the same: by everything when they may be new, else as the known forms are.
 */
static void check_unknown_forms(void)
{
    proc_v2_t v2 = (proc_v2_t)exported("cuGetProcAddress_v2");
    struct row batch = {"cuMemcpyBatchAsync_v9", ALL, 0, OP}, callback = {"cuStreamAddCallback", STREAM, 0, OP};
    void *p = NULL, *q = NULL;
    CHECK(v2(batch.name, &p, 1, 0, NULL) != 0);
    CHECK(v2("cuMemcpyBatchAsync", &p, 99999, 0, NULL) == 0);
    CHECK(p == dlsym(driver, batch.name) && p == dlsym(driver, batch.name));
    batch.name = "cuMemcpyBatchAsync"; /* the known form by whose name it goes in the log */
    int before = joins()->calls;
    call(&batch, (fake_fn)p, FAKE_UNKNOWN);
    CHECK(joins()->calls == before);
    set_pending(1);
    call(&batch, (fake_fn)p, FAKE_UNKNOWN);
    check_join(&batch, before);

    before = joins()->calls;
    CHECK(v2("cuStreamAddCallback", &q, 13000, 0, NULL) == 0 && q != p);
    call(&callback, (fake_fn)q, FAKE_SECOND);
    check_join(&callback, before);
    set_pending(0);
}

static void check_dlerror(void)
{
    dlerror();
    CHECK(dlsym(driver, "cuNoSuchFunction") == NULL);
    const char *text = dlerror();
    CHECK(text && strstr(text, "cuNoSuchFunction"));
    CHECK(dlsym(driver, "cuLaunchKernel") && dlerror() == NULL);
    CHECK(dlsym(driver, "cuDeviceGet") && dlerror() == NULL);
}

/* A second driver, which is not the one that the process uses: its functions are its own. */
static void check_copy(const char *path)
{
    void *copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK_FOR(path, copy != NULL && copy != driver);
    fake_fn fn = (fake_fn)dlsym(copy, "cuLaunchKernel");
    CHECK(fn && (void *)fn != exported("cuLaunchKernel"));
    CHECK(fn(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == 1000 + FAKE_IX_cuLaunchKernel);
    CHECK(dlsym(driver, "cuLaunchKernel") == exported("cuLaunchKernel"));
}

static void *first_use(void *barrier)
{
    pthread_barrier_wait(barrier);
    for (int i = 0; i < ROWS; i++) {
        void *fn = dlsym(driver, rows[i].name);
        CHECK_FOR(rows[i].name, fn && fn == exported(rows[i].name));
        if (rows[i].class != LAUNCH_CONFIG)
            CHECK_FOR(rows[i].name,
                      ((fake_fn)fn)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == i);
    }
    return NULL;
}

/* Threads that meet at the very first use. */
static void check_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, first_use, &barrier) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void check_old_driver(void)
{
    fake_fn batch = (fake_fn)exported("cuMemcpyBatchAsync_v2"), launch = (fake_fn)exported("cuLaunchKernel");
    CHECK(dlsym(driver, "cuMemcpyBatchAsync_v2") == NULL);
    CHECK(launch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == FAKE_IX_cuLaunchKernel);
    CHECK(batch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == CUDA_ERROR_NOT_FOUND);
    void *p = NULL;
    CHECK(((proc_v1_t)exported("cuGetProcAddress"))("cuInit", &p, 13000, 0) == CUDA_ERROR_NOT_FOUND && !p);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "all";
    set_pending = (slr_test_pending_t)exported("slr_test_pending");
    set_guard = (slr_test_guard_t)exported("slr_test_guard");
    set_take = (slr_test_take_t)exported("slr_test_take");
    joins = (slr_test_joins_t)exported("slr_test_joins");
    config.hStream = (CUstream)(uintptr_t)0x5eed5eed5eed;

    fake_fn launch = (fake_fn)exported("cuLaunchKernel");
    CHECK(launch(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == CUDA_ERROR_NOT_INITIALIZED);
    void *p = NULL;
    CHECK(((proc_v1_t)exported("cuGetProcAddress"))("cuInit", &p, 13000, 0) == CUDA_ERROR_NOT_INITIALIZED && !p);

    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK_FOR(dlerror(), driver != NULL);
    last_call = (fake_last_t)dlsym(driver, "fake_last");
    CHECK(last_call != NULL);
    if (strcmp(mode, "old") == 0) {
        check_old_driver();
    } else if (strcmp(mode, "proc") == 0) { /* the look-up is the first that is ever called */
        check_get_proc_address();
    } else if (strcmp(mode, "threads") == 0) {
        check_threads();
    } else if (strcmp(mode, "copy") == 0) {
        CHECK(argc == 3);
        check_copy(argv[2]);
    } else {
        for (int i = 0; i < ROWS; i++)
            check_row(i);
        check_get_proc_address();
        check_unknown_forms();
        check_dlerror();
    }
    printf("%s: %d functions\n", mode, (int)ROWS);
    return 0;
}
