/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/reach.h"
#include "interpose/hook.h"

_Atomic(slr_dlsym_fn) slr_real_dlsym;
_Atomic(slr_dlvsym_fn) slr_real_dlvsym;
_Atomic(slr_dlopen_fn) slr_real_dlopen;
_Atomic(slr_dlmopen_fn) slr_real_dlmopen;

/* Stands for what the C library lacks; the arguments do not matter. */
static void *none(void)
{
    return NULL;
}

SLR_EARLY static void *next_or_none(const char *name)
{
    void *found = slr_elf_next(name);
    return found ? found : (void *)none;
}

/* Two threads may do this at the same time: they find the same. */
SLR_EARLY void slr_dlsym_ready(void)
{
    if (atomic_load_explicit(&slr_real_dlsym, memory_order_acquire))
        return;
    atomic_store_explicit(&slr_real_dlopen, (slr_dlopen_fn)next_or_none("dlopen"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlmopen, (slr_dlmopen_fn)next_or_none("dlmopen"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlvsym, (slr_dlvsym_fn)next_or_none("dlvsym"), memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlsym, (slr_dlsym_fn)next_or_none("dlsym"), memory_order_release);
}

void *slr_dlsym(void *handle, const char *name)
{
    slr_dlsym_ready();
    return atomic_load_explicit(&slr_real_dlsym, memory_order_relaxed)(handle, name);
}

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
        wrapper = slr_wrapper_by_name(name, real);
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
