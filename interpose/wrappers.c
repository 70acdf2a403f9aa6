/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/hook.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "base/wait.h"
#include "interpose/dlsym.h"
#include "interpose/gate_table.h"
#include "interpose/resolve.h"

/* These two are in this file, below. */
#undef cuGetProcAddress /* cuda.h: cuGetProcAddress_v2 */
SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);
SLR_HOOK_NAME(cuGetProcAddress);
SLR_HOOK_NAME(cuGetProcAddress_v2);

/* Only addresses are taken; the types do not matter here. The gate's stubs have hidden names too
 * (stubs.S). */
#define X(sym, cls, arg, why) extern const char slr_stub_##sym[] __attribute__((visibility("hidden")));
#include "interpose/gate.def"
#define N(need, sym) extern const char slr_hook_##sym[] __attribute__((visibility("hidden")));
#define B N
#define T N
#include "base/hooks.def"

struct wrapper {
    const char *name;
    const void *code;
    void *const *real;
    enum slr_lib lib;
};

/* The dynamic linker's functions are in it without code: nobody is given theirs. */
static const struct wrapper wrappers[] = {
#define X(sym, cls, arg, why) {#sym, slr_stub_##sym, &slr_gate_found[SLR_GATE_IX_##sym], SLR_LIB_CUDA},
#include "interpose/gate.def"
#define L(sym) {#sym, NULL, (void *const *)&slr_real_##sym, SLR_LIB_C},
#define P(sym) {#sym, (const void *)slr_hook_##sym, &slr_real_##sym, SLR_LIB_CUDA},
#define N(need, sym) {#sym, slr_hook_##sym, (void *const *)&slr_real.sym, SLR_LIB_NCCL},
#define B(need, sym) {#sym, slr_hook_##sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLAS},
#define T(need, sym) {#sym, slr_hook_##sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLASLT},
#include "base/hooks.def"
};
enum { WRAPPERS = sizeof(wrappers) / sizeof(wrappers[0]), BUCKETS = 1024, END = 0 };
_Static_assert(WRAPPERS * 2 < BUCKETS, "the tables stay at most half full");

/* Open addressing; an entry is an index into `wrappers` plus one. */
static uint16_t by_name[BUCKETS], by_address[BUCKETS];
static struct slr_once names_ready, addresses_ready;

static unsigned bucket(uint64_t key)
{
    return (unsigned)((key * 0x9e3779b97f4a7c15u) >> 54);
}
_Static_assert(BUCKETS == 1 << (64 - 54), "bucket() yields an index");

static uint64_t key_of(const char *name)
{
    uint64_t h = 0;
    for (; *name; name++)
        h = h * 131 + (unsigned char)*name;
    return h;
}

static void insert(uint16_t *table, unsigned b, unsigned i)
{
    while (table[b] != END)
        b = (b + 1) % BUCKETS;
    table[b] = (uint16_t)(i + 1);
}

static const struct wrapper *named(const char *name)
{
    if (slr_once_begin(&names_ready)) {
        memset(by_name, 0, sizeof(by_name)); /* a child may take over from a parent's thread */
        for (unsigned i = 0; i < WRAPPERS; i++)
            insert(by_name, bucket(key_of(wrappers[i].name)), i);
        slr_once_end(&names_ready);
    }
    for (unsigned b = bucket(key_of(name)); by_name[b] != END; b = (b + 1) % BUCKETS) {
        const struct wrapper *w = &wrappers[by_name[b] - 1];
        if (strcmp(w->name, name) == 0)
            return w;
    }
    return NULL;
}

bool slr_is_hooked(const char *name, const void **real)
{
    const struct wrapper *w = named(name);
    *real = w && slr_found(w->lib) ? *w->real : NULL;
    return w != NULL;
}

/* The wrapper of the driver function at `real`, else NULL. The driver must have been found. */
static void *by_real_address(const void *real)
{
    if (slr_once_begin(&addresses_ready)) {
        memset(by_address, 0, sizeof(by_address));
        for (unsigned i = 0; i < WRAPPERS; i++)
            if (wrappers[i].lib == SLR_LIB_CUDA && *wrappers[i].real)
                insert(by_address, bucket((uintptr_t)*wrappers[i].real), i);
        slr_once_end(&addresses_ready);
    }
    for (unsigned b = bucket((uintptr_t)real); by_address[b] != END; b = (b + 1) % BUCKETS) {
        const struct wrapper *w = &wrappers[by_address[b] - 1];
        if (*w->real == real)
            return (void *)w->code;
    }
    return NULL;
}

void *slr_wrapper_by_name(const char *name, void *real)
{
    const struct wrapper *w = named(name);
    if (!w) /* a newer form of a gated function, perhaps */
        return name[1] == 'u' && slr_is_drivers(name, real) ? slr_gate_spare(name, INT_MAX, 0, real) : NULL;
    if (real == w->code || !slr_find(w->lib))
        return NULL;
    if (*w->real == real)
        return (void *)w->code;
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(slr_mix(key_of(name), (uintptr_t)real)))
        slr_log(SLR_LOG_INFO, "second_copy", "symbol=%s msg=%s", name,
                "found in another library than the one that is followed; this one is left alone");
    return NULL;
}

/* ---- cuGetProcAddress ----
 *
 * The driver's own look-up. The real one answers, with all that versions and flags mean to it; then
 * the function that it found is exchanged for its wrapper. It is here and not in a file of its own
 * because it finds itself in the table. */

static CUresult exchange(CUresult result, const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    int saved = errno;
    void *wrapper = NULL;
    if (result == CUDA_SUCCESS && symbol && pfn && *pfn) {
        wrapper = by_real_address(*pfn);
        if (!wrapper)
            wrapper =
                slr_gate_spare(symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, *pfn);
    }
    if (wrapper)
        *pfn = wrapper;
    errno = saved;
    return result;
}

static CUresult without(void)
{
    return slr_find_cuda() ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_NOT_INITIALIZED;
}

SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    __typeof__(&cuGetProcAddress) real;
    real = slr_find_cuda() ? (__typeof__(real))slr_real_cuGetProcAddress : NULL;
    return real ? exchange(real(symbol, pfn, version, flags), symbol, pfn, version, flags) : without();
}

SLR_API
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    __typeof__(&cuGetProcAddress_v2) real;
    real = slr_find_cuda() ? (__typeof__(real))slr_real_cuGetProcAddress_v2 : NULL;
    return real ? exchange(real(symbol, pfn, version, flags, status), symbol, pfn, version, flags) : without();
}
