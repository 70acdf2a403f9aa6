/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include "interpose/hook.h"

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
