/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/resolve.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "base/wait.h"
#include "interpose/dlsym.h"
#include "interpose/gate.h"

/* What cuda.h's and cublas_v2.h's macros make of a name is what the library exports. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

struct slot {
    const char *name;
    void **where;
    enum slr_lib lib;
    bool required;
};

enum { NEED_R = true, NEED_O = false };

void *slr_real_cuGetProcAddress, *slr_real_cuGetProcAddress_v2;
static void *elapsed_time; /* the form before CUDA 12.8, with the same arguments */
static _Atomic(void *) opened[SLR_LIB_COUNT];

static const struct slot slots[] = {
#define D(need, fn) {TEXT(fn), (void **)&slr_real.fn, SLR_LIB_CUDA, NEED_##need},
#define N(need, fn) {TEXT(fn), (void **)&slr_real.fn, SLR_LIB_NCCL, NEED_##need},
#define B(need, fn) {TEXT(fn), (void **)&slr_real.fn, SLR_LIB_CUBLAS, NEED_##need},
#define T(need, fn) {TEXT(fn), (void **)&slr_real.fn, SLR_LIB_CUBLASLT, NEED_##need},
#include "base/real.def"
#define X(sym, cls, arg, why) {#sym, &slr_gate_found[SLR_GATE_IX_##sym], SLR_LIB_CUDA, false},
#include "interpose/gate.def"
    {"cuEventElapsedTime", &elapsed_time, SLR_LIB_CUDA, false},
    {"cuGetProcAddress", &slr_real_cuGetProcAddress, SLR_LIB_CUDA, false},
    {"cuGetProcAddress_v2", &slr_real_cuGetProcAddress_v2, SLR_LIB_CUDA, false},
};
enum { SLOTS = sizeof(slots) / sizeof(slots[0]) };

static const struct {
    const char *soname[4];
    const char *probe; /* an export by which the library is known wherever it was linked into */
} libs[SLR_LIB_COUNT] = {
    [SLR_LIB_CUDA] = {{"libcuda.so.1"}, "cuDriverGetVersion"},
    [SLR_LIB_NCCL] = {{"libnccl.so.2"}, "ncclGetVersion"},
    [SLR_LIB_CUBLAS] = {{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}, "cublasGetVersion_v2"},
    [SLR_LIB_CUBLASLT] = {{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}, "cublasLtGetVersion"},
};

static struct slr_once published[SLR_LIB_COUNT];

static int probe(struct dl_phdr_info *info, size_t size, void *ctx)
{
    const char **arg = ctx; /* in: the symbol; out: the object's name */
    (void)size;
    const ElfW(Dyn) *d = slr_elf_dynamic(info);
    if (!d || !slr_elf_symbol(d, info->dlpi_addr, arg[0]))
        return 0;
    arg[1] = info->dlpi_name;
    return 1;
}

/* A handle that stays open, or NULL. */
static void *open_loaded(enum slr_lib lib)
{
    const char *arg[2] = {libs[lib].probe, NULL};
    for (unsigned i = 0; i < 4 && libs[lib].soname[i]; i++) {
        void *handle = dlopen(libs[lib].soname[i], RTLD_LAZY | RTLD_NOLOAD);
        if (handle)
            return handle;
    }
    if (dl_iterate_phdr(probe, arg) == 0 || !arg[1])
        return NULL;
    /* The program's own exports are under "", which only NULL opens. */
    return arg[1][0] ? dlopen(arg[1], RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

/* What stands in front of the driver's functions takes its place before the stubs may jump: while
 * the word says unresolved, all of them come through slr_gate_slow, which waits for this. */
static void install_gate(void)
{
    if (!slr_real.cuEventElapsedTime)
        slr_real.cuEventElapsedTime = (__typeof__(slr_real.cuEventElapsedTime))elapsed_time;
    for (unsigned i = 0; i < SLR_GATE_COUNT; i++)
        slr_gate_real[i] = slr_gate_found[i] ? slr_gate_found[i] : (void *)slr_gate_missing;
    slr_alloc_install();
    slr_connections_install();
    slr_event_install();
    slr_graph_install();
    slr_log_enabled(SLR_LOG_WARN); /* tells the problems of the settings just used */
    atomic_fetch_and_explicit(&slr_gate_word, ~SLR_GATE_UNRESOLVED, memory_order_release);
}

static void publish(enum slr_lib lib, void *const *found)
{
    /* Threads that come at once have found the same; one of them publishes. */
    if (!slr_once_begin(&published[lib]))
        return;
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].lib == lib)
            *slots[i].where = found[i];
    if (lib == SLR_LIB_CUDA)
        install_gate();
    slr_once_end(&published[lib]);
}

/* Apart, as it needs room on the stack that the usual call would pay for. */
__attribute__((noinline)) static bool find_first(enum slr_lib lib)
{
    void *found[SLOTS];
    void *handle = open_loaded(lib);
    if (!handle)
        return false;
    /* Looked up without a lock: the dynamic linker has its own, and may call back. */
    for (unsigned i = 0; i < SLOTS; i++)
        found[i] = slots[i].lib == lib ? slr_dlsym(handle, slots[i].name) : NULL;
    atomic_store_explicit(&opened[lib], handle, memory_order_relaxed);
    publish(lib, found);
    return true;
}

bool slr_found(enum slr_lib lib)
{
    return lib == SLR_LIB_C || slr_once_done(&published[lib]);
}

unsigned slr_found_count(void)
{
    unsigned n = 0;
    for (int lib = 0; lib < SLR_LIB_COUNT; lib++)
        n += slr_once_done(&published[lib]);
    return n;
}

bool slr_find(enum slr_lib lib)
{
    return slr_found(lib) || find_first(lib);
}

static bool exports(enum slr_lib lib, const char *name, const void *real)
{
    return slr_dlsym(atomic_load_explicit(&opened[lib], memory_order_relaxed), name) == real;
}

bool slr_is_drivers(const char *name, const void *real)
{
    return slr_find_cuda() && exports(SLR_LIB_CUDA, name, real);
}

bool slr_is_nccls(const char *name, const void *real)
{
    return slr_find(SLR_LIB_NCCL) && exports(SLR_LIB_NCCL, name, real);
}

/* Says what is missing, once for each library and kind of trouble. */
static bool complete(enum slr_lib lib)
{
    static _Atomic bool said_absent[SLR_LIB_COUNT], said_missing[SLR_LIB_COUNT];
    bool all = true;
    if (!slr_find(lib)) {
        if (!atomic_exchange(&said_absent[lib], true))
            slr_log(SLR_LOG_ERROR, "resolve", "library=%s msg=%s", libs[lib].soname[0],
                    "the library is not loaded; calls that need it are passed on");
        return false;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].lib != lib || !slots[i].required || *slots[i].where)
            continue;
        all = false;
        if (!atomic_load(&said_missing[lib]))
            slr_log(SLR_LOG_ERROR, "resolve", "library=%s symbol=%s msg=%s", libs[lib].soname[0], slots[i].name,
                    "the library lacks a function that is required; calls are passed on");
    }
    if (!all)
        atomic_store(&said_missing[lib], true);
    return all;
}

/* 0: not asked, 1: incomplete, 2: complete. What a library has does not change. */
bool slr_resolve(enum slr_lib lib)
{
    static _Atomic int known[SLR_LIB_COUNT];
    int k = atomic_load_explicit(&known[lib], memory_order_acquire);
    if (k == 0) {
        bool all = complete(lib);
        if (!all && !slr_found(lib))
            return false;
        k = all ? 2 : 1;
        atomic_store_explicit(&known[lib], k, memory_order_release);
    }
    return k == 2;
}

bool slr_resolve_cuda_load(void)
{
    if (!slr_find_cuda())
        /* Kept open; slr_find sees whether it is there. */
        dlopen(libs[SLR_LIB_CUDA].soname[0], RTLD_LAZY | RTLD_LOCAL);
    return slr_resolve(SLR_LIB_CUDA);
}

void slr_hook_missing(const char *library, const char *function)
{
    uint64_t key = slr_mix((uint64_t)(uintptr_t)library, (uint64_t)(uintptr_t)function);
    if (slr_log_first(key))
        slr_log(SLR_LOG_ERROR, "call", "library=%s symbol=%s msg=%s", library, function,
                "called, but the library is not loaded or does not have it");
}
