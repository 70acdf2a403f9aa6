/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/hook.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/real.h"
#include "base/wait.h"
#include "cache/captures.h"
#include "interpose/dlsym.h"
#include "interpose/gate.h"
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

/* It is in nccl_left.def: a word of this. */
static bool is_left(const char *name)
{
    static const char left[] = " "
#define U(why, ...) #__VA_ARGS__ " "
#include "interpose/nccl_left.def"
        ;
    const size_t n = strlen(name);
    const char *at = left;
    while ((at = strstr(at, name)) && (at[-1] != ' ' || at[n] != ' '))
        at++;
    return at != NULL;
}

/* NCCL's, and newer than all that slipring knows: what it puts on a stream is joined there by the gate. */
static void say_unknown(const char *name, const void *real)
{
    if (slr_log_enabled(SLR_LOG_INFO) && !is_left(name) && slr_is_nccls(name, real) &&
        slr_log_first(slr_mix((uintptr_t)real, SLR_HOOKED)))
        slr_log(SLR_LOG_INFO, "unknown_function", "symbol=%s msg=%s", name,
                "NCCL has a function that is not known: on another stream it is not ordered with the ring's calls");
}

/* The wrapper of the hooked function `name` if its real function is at `real`, else NULL. Finds the
 * library when necessary. */
static void *by_name(const char *name, void *real)
{
    const struct slr_hooked *h = slr_hooked_find(name);
    if (!h && name[0] == 'n' && real)
        say_unknown(name, real);
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

/* ---- spare stubs (gate.h) ---- */

/* In use. The row is written before the address that finds it. */
static _Atomic(void *) spare_real[SLR_GATE_SPARES];
static _Atomic unsigned spares;
extern const char slr_gate_spares[] __attribute__((visibility("hidden")));

static bool digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0;
}

/* Length of the name without its version and stream form: cuMemcpyHtoD of cuMemcpyHtoD_v2_ptds. */
static size_t base_length(const char *name, bool *per_thread)
{
    size_t n = strlen(name);
    *per_thread = n > 5 && (memcmp(name + n - 5, "_ptsz", 5) == 0 || memcmp(name + n - 5, "_ptds", 5) == 0);
    if (*per_thread)
        n -= 5;
    for (size_t i = n; i > 1; i--)
        if (name[i - 1] == 'v' && name[i - 2] == '_' && digits(name + i, n - i))
            return i - 2;
    return n;
}

/* The first row of that name, or NULL. *agree: all of them have one class, and the stream in one place. */
static const struct slr_gate_row *rows_of(const char *symbol, size_t n, bool per_thread, bool *agree)
{
    const struct slr_gate_row *first = NULL;
    bool row_per_thread;
    *agree = true;
    for (unsigned i = 0; i < SLR_GATE_COUNT; i++) {
        const struct slr_gate_row *row = &slr_gate_rows[i];
        if (strncmp(row->name, symbol, n) != 0 || base_length(row->name, &row_per_thread) != n ||
            row_per_thread != per_thread)
            continue;
        if (!first)
            first = row;
        *agree = *agree && row->class == first->class && row->arg == first->arg;
    }
    return first;
}

/* What all forms of the function agree on. Where they differ in the place of the stream, and for
 * forms that the table can not know, everything is joined. False: not gated. */
static bool row_of_base(const char *symbol, int version, bool per_thread, struct slr_gate_row *out)
{
    bool named_per_thread, agree;
    const size_t n = base_length(symbol, &named_per_thread);
    const bool wanted = per_thread || named_per_thread;
    const struct slr_gate_row *first = rows_of(symbol, n, wanted, &agree);
    if (!first && wanted) /* not every function has per-thread forms */
        first = rows_of(symbol, n, false, &agree);
    if (!first || first->class == SLR_GATE_NONE)
        return false;
    *out = *first;
    if (!agree || version > SLR_GATE_CUDA)
        out->class = SLR_GATE_ALL;
    return true;
}

/* Whether that is an older form that needs no gate, where newer ones of the same name are gated. */
static bool harmless(const char *symbol, const void *real)
{
    static const char *const names[] = {
#define H(name, why) #name,
#include "interpose/harmless.def"
    };
    bool per_thread;
    const size_t n = base_length(symbol, &per_thread);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (base_length(names[i], &per_thread) == n && memcmp(names[i], symbol, n) == 0 &&
            slr_is_drivers(names[i], real))
            return true;
    return false;
}

static void *spare_stub(unsigned i)
{
    return (void *)(slr_gate_spares + ((size_t)i << SLR_GATE_SPARE_SHIFT));
}

void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real)
{
    struct slr_gate_row row;
    if (!row_of_base(symbol, version, per_thread != 0, &row) || harmless(symbol, real))
        return NULL;
    for (unsigned i = 0; i < SLR_GATE_SPARES; i++)
        if (atomic_load_explicit(&spare_real[i], memory_order_acquire) == real)
            return spare_stub(i);
    unsigned i = atomic_fetch_add(&spares, 1);
    if (i >= SLR_GATE_SPARES) {
        atomic_store(&spares, SLR_GATE_SPARES);
        slr_log(SLR_LOG_ERROR, "gate", "symbol=%s msg=%s", symbol,
                "more unknown forms of driver functions than can be followed; set SLIPRING_ENABLE=off and report this");
        return NULL;
    }
    /* graph.c does not announce what begins there. */
    if (strncmp(symbol, "cuStreamBeginCapture", sizeof "cuStreamBeginCapture" - 1) == 0)
        slr_captures_unseen();
    /* The address last: who finds it finds the row and the target. */
    slr_gate_spare_rows[i] = row;
    slr_gate_real[SLR_GATE_COUNT + i] = real;
    atomic_store_explicit(&spare_real[i], real, memory_order_release);
    slr_log(SLR_LOG_INFO, "gate", "symbol=%s joins=%s msg=%s", symbol, row.class == SLR_GATE_ALL ? "all" : "stream",
            "a form of the function that is not in the table");
    return spare_stub(i);
}
