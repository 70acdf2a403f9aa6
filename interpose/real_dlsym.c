/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/dlsym.h"

#include <stddef.h>

_Atomic(slr_dlsym_fn) slr_real_dlsym;
_Atomic(slr_dlvsym_fn) slr_real_dlvsym;
_Atomic(slr_dlopen_fn) slr_real_dlopen;
_Atomic(slr_dlmopen_fn) slr_real_dlmopen;

static void *none(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

static void *none_versioned(void *handle, const char *name, const char *version)
{
    (void)version;
    return none(handle, name);
}

static void *none_opened(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

static void *none_in_space(long space, const char *file, int mode)
{
    (void)space;
    return none_opened(file, mode);
}

/* Two threads may do this at the same time: they find the same. */
SLR_EARLY void slr_find_real_dlsym(void)
{
    slr_dlsym_fn sym = (slr_dlsym_fn)slr_elf_next("dlsym");
    slr_dlvsym_fn vsym = (slr_dlvsym_fn)slr_elf_next("dlvsym");
    slr_dlopen_fn open = (slr_dlopen_fn)slr_elf_next("dlopen");
    slr_dlmopen_fn mopen = (slr_dlmopen_fn)slr_elf_next("dlmopen");
    atomic_store_explicit(&slr_real_dlopen, open ? open : none_opened, memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlmopen, mopen ? mopen : none_in_space, memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlvsym, vsym ? vsym : none_versioned, memory_order_relaxed);
    atomic_store_explicit(&slr_real_dlsym, sym ? sym : none, memory_order_release);
}

void *slr_dlsym(void *handle, const char *name)
{
    if (!atomic_load_explicit(&slr_real_dlsym, memory_order_acquire))
        slr_find_real_dlsym();
    return atomic_load_explicit(&slr_real_dlsym, memory_order_relaxed)(handle, name);
}
