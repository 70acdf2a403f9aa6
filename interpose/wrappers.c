/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/hook.h"

#include <dlfcn.h>
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
#include "interpose/gate.h"
#include "interpose/hooked.h"
#include "interpose/resolve.h"

/* These two are in this file, below. */
#undef cuGetProcAddress /* cuda.h: cuGetProcAddress_v2 */
SLR_API
CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags);
SLR_HOOK_NAME(cuGetProcAddress);
SLR_HOOK_NAME(cuGetProcAddress_v2);

/* Only addresses are taken; the types do not matter here. The gate's stubs have hidden names too
 * (gate.S). */
#define X(sym, cls, arg, why) extern const char slr_stub_##sym[] __attribute__((visibility("hidden")));
#include "interpose/gate.def"
#define N(need, sym) extern const char slr_hook_##sym[] __attribute__((visibility("hidden")));
#define B N
#define T N
#include "base/hooks.def"

/* In the order of slr_hooked. The dynamic linker's are left out: nobody is given theirs. */
static const void *const code[SLR_HOOKED] = {
#define X(sym, cls, arg, why) slr_stub_##sym,
#include "interpose/gate.def"
#define L(sym) NULL,
#define P(sym) (const void *)slr_hook_##sym,
#define N(need, sym) slr_hook_##sym,
#define B N
#define T N
#include "base/hooks.def"
};

/* By the address of the real function: open addressing as in hooked.c. */
static uint16_t by_address[SLR_HOOKED_BUCKETS];
static struct slr_once addresses_ready;

/* The wrapper of the driver function at `real`, else NULL. The driver must have been found. */
static void *by_real_address(const void *real)
{
    if (slr_once_begin(&addresses_ready)) {
        memset(by_address, 0, sizeof(by_address)); /* a child may take over from a parent's thread */
        for (unsigned i = 0; i < SLR_HOOKED; i++)
            if (slr_hooked[i].lib == SLR_LIB_CUDA && *slr_hooked[i].real)
                slr_hooked_insert(by_address, (uintptr_t)*slr_hooked[i].real, i);
        slr_once_end(&addresses_ready);
    }
    for (unsigned b = slr_hooked_bucket((uintptr_t)real); by_address[b]; b = (b + 1) % SLR_HOOKED_BUCKETS)
        if (*slr_hooked[by_address[b] - 1].real == real)
            return (void *)code[by_address[b] - 1];
    return NULL;
}

/* The wrapper of the hooked function `name` if its real function is at `real`, else NULL. Finds the
 * library when necessary. */
static void *by_name(const char *name, void *real)
{
    const struct slr_hooked *h = slr_hooked_find(name);
    if (!h) /* a newer form of a gated function, perhaps */
        return name[1] == 'u' && slr_is_drivers(name, real) ? slr_gate_spare(name, INT_MAX, 0, real) : NULL;
    void *wrapper = (void *)code[h - slr_hooked];
    if (real == wrapper || !slr_find(h->lib))
        return NULL;
    if (*h->real == real)
        return wrapper;
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(slr_mix((uintptr_t)h, (uintptr_t)real)))
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

/* ---- dlsym and dlvsym, as this library exports them (dlsym.S) ---- */

/* Almost every look-up ends here. The pseudo-handles are the caller's business: global look-ups
 * find our exports by themselves. dlsym and dlvsym themselves are not replaced: who asks the C
 * library's handle for them wants to get around hooks. */
SLR_EARLY static bool interesting(const void *handle, const char *name)
{
    slr_dlsym_ready();
    slr_reach_seen();
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name)
        return false;
    if (name[0] == 'c')
        return name[1] == 'u';
    return name[0] == 'n' && name[1] == 'c' && name[2] == 'c' && name[3] == 'l';
}

/* `real` came from a successful look-up, after which dlerror() says nothing; our own attempts must
 * not change that. */
static void *replacement(const char *name, void *real)
{
    int saved = errno;
    void *wrapper = NULL;
    if (real) {
        wrapper = by_name(name, real);
        /* Our look-ups may have left an error that the caller did not cause. */
        dlerror();
    }
    errno = saved;
    return wrapper;
}

SLR_EARLY void *slr_dlsym_find(void *handle, const char *name)
{
    if (!interesting(handle, name))
        return NULL;
    return replacement(name, atomic_load_explicit(&slr_real_dlsym, memory_order_relaxed)(handle, name));
}

SLR_EARLY void *slr_dlvsym_find(void *handle, const char *name, const char *version)
{
    if (!interesting(handle, name))
        return NULL;
    return replacement(name, atomic_load_explicit(&slr_real_dlvsym, memory_order_relaxed)(handle, name, version));
}
