/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/util/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/counters.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"
#include "plugin/slipring.h"

bool slr_process_off(void)
{
    return !slr_get(SLR_S_ENABLE);
}

/* Names of the loaded objects in the order of their loading. dlopen is not for use inside dl_iterate_phdr. */
struct names {
    char **name;
    size_t count, room;
};

static int collect(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct names *list = ctx;
    (void)size;
    if (!info->dlpi_name || !info->dlpi_name[0]) /* the program itself */
        return 0;
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        char **more = realloc(list->name, room * sizeof *more);
        if (!more)
            return 1;
        list->name = more;
        list->room = room;
    }
    list->name[list->count] = strdup(info->dlpi_name);
    list->count += list->name[list->count] != NULL;
    return 0;
}

static void release(struct names *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->name[i]);
    free(list->name);
}

/* Any plugin struct of this library that `handle`'s object itself, not one that it depends on,
 * exports under `symbol`. */
static const void *ours_in(void *handle, const char *object, const char *symbol)
{
    Dl_info at;
    const char *const *found = dlsym(handle, symbol); /* the name is the struct's first field */
    if (!found || !dladdr(found, &at) || !at.dli_fname || strcmp(at.dli_fname, object) != 0)
        return NULL;
    return *found && strcmp(*found, SLR_PLUGIN_NAME) == 0 ? found : NULL;
}

/* Every version so far has exported this symbol: it tells instances of this library from other objects. */
#define KNOWN_BY "ncclTunerPlugin_v2"

static const void *search(const struct names *list, const char *symbol, const void *own)
{
    for (size_t i = 0; i < list->count; i++) {
        /* NOLOAD: only a handle of what is loaded already. */
        void *handle = dlopen(list->name[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!handle)
            continue;
        const void *copy = ours_in(handle, list->name[i], KNOWN_BY);
        const void *wanted = copy ? ours_in(handle, list->name[i], symbol) : NULL;
        dlclose(handle); /* this library can not be unloaded (-z nodelete) */
        if (!copy)
            continue;
        if (wanted != own && slr_log_first(slr_mix(0x636f7079, (uint64_t)(symbol[strlen(symbol) - 1]) ^ symbol[4])))
            slr_log(wanted ? SLR_LOG_INFO : SLR_LOG_WARN, "plugin_copy", "symbol=%s first=%s msg=%s", symbol,
                    list->name[i],
                    wanted ? "another copy of this library was loaded before; it does the work"
                           : "a copy of another version was loaded before and lacks this interface: this one does "
                             "nothing");
        return wanted;
    }
    return own;
}

static const void *look(const char *symbol, const void *own)
{
    struct names list = {0};
    dl_iterate_phdr(collect, &list);
    const void *found = search(&list, symbol, own);
    release(&list);
    return found;
}

const void *slr_first_look(struct slr_first *first, const char *symbol, const void *own)
{
    const void *found = atomic_load(&first->found) == 1 ? NULL : look(symbol, own);
    atomic_store_explicit(&first->found, found ? (uintptr_t)found : 1, memory_order_release);
    return found;
}

/* ---- the regions that a thread has open ---- */

/* The open regions, one bit of each word for each: bit 0 is the innermost. Twenty bytes only: the initial-exec model
 * takes them from static thread-local space, of which a library that is loaded late finds little. */
static _Thread_local struct {
    uint64_t gathers, gemms;
    unsigned depth;
} regions __attribute__((tls_model("initial-exec")));

#define DEEPEST 64
_Static_assert(SLIPRING_REGION_DEPTH == DEEPEST, "as many as a word has bits");

bool slr_region_gathers(void)
{
    return regions.gathers != 0;
}

bool slr_region_gemms(void)
{
    return regions.gemms != 0;
}

int slipring_region_begin(unsigned flags)
{
    /* A flag of a later version would be a promise that is not kept. */
    if (flags & ~(SLIPRING_REGION_GATHERS | SLIPRING_REGION_GEMMS))
        return -EINVAL;
    if (regions.depth == DEEPEST)
        return -ENOSPC;
    regions.gathers = regions.gathers << 1 | !!(flags & SLIPRING_REGION_GATHERS);
    regions.gemms = regions.gemms << 1 | !!(flags & SLIPRING_REGION_GEMMS);
    regions.depth++;
    return 0;
}

int slipring_region_end(void)
{
    if (regions.depth == 0)
        return -EPERM;
    regions.gathers >>= 1;
    regions.gemms >>= 1;
    regions.depth--;
    return 0;
}

/* ---- the rest of slipring.h: version and counters ---- */

/* The public struct has all of base/counters.def, and what earlier versions counted: it only grows. */
#define X(name, value, doc) +1
enum {
    COUNTED = 0
#include "base/counters.def"
};
#undef X
enum { NO_MORE = 3 }; /* sites, sites_symmetric, sites_broken */
_Static_assert(sizeof(struct slipring_counters) == sizeof(size_t) + (COUNTED + NO_MORE) * sizeof(uint64_t), "all");

/* More than any version will have. What is above has not been set. */
#define LARGEST 65536

int slipring_version(void)
{
    return SLIPRING_VERSION_NUMBER;
}

const char *slipring_version_string(void)
{
    return SLIPRING_VERSION;
}

int slipring_counters_read(struct slipring_counters *counters)
{
    struct slipring_counters all = {0};
    struct slr_totals now;
    if (!counters || counters->size < offsetof(struct slipring_counters, bytes) || counters->size > LARGEST)
        return -EINVAL;
    slr_counters_total(&now);
#define X(name, value, doc) all.name = now.name;
#include "base/counters.def"
#undef X
    const size_t head = offsetof(struct slipring_counters, calls), room = counters->size - head,
                 known = sizeof all - head;
    memset(&counters->calls, 0, room);
    memcpy(&counters->calls, &all.calls, room < known ? room : known);
    return 0;
}
