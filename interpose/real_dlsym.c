/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/dlsym.h"

#include <stddef.h>

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
