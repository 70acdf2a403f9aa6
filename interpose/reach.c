/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/reach.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include "base/log.h"
#include "cache/captures.h"
#include "interpose/dlsym.h"
#include "interpose/resolve.h"
#include "plugin/pending/pending.h"
#include "plugin/produce/product.h"

/* ---- who opens ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool opening __attribute__((tls_model("initial-exec")));
static _Atomic unsigned long long opened; /* deep openings that have begun */
/* Those that the last look has seen, and under the lock the objects that were there before the others. */
static _Atomic unsigned long long seen_opened;
static struct present {
    unsigned objects;
    unsigned long long subs;
} usual;

static void look_as(unsigned own);

/* Counted until it is known what has been opened. */
static void end_deep(void)
{
    int saved = errno;
    opening = false;
    if (atomic_load(&slr_reach_looks))
        look_as(1);
    atomic_fetch_sub(&slr_reach_word, 1);
    errno = saved;
}

SLR_EARLY void slr_reach_seen(void)
{
    /* Nobody opens anything: the usual case, and the only one before there is a thread's memory. */
    if ((atomic_load_explicit(&slr_reach_word, memory_order_relaxed) & ~SLR_REACH_PAST) != 0 && opening)
        end_deep();
}

static void join_pending(void)
{
    slr_product_on_all();
    slr_pending_opening();
}

static void past(const char *object, const char *symbol)
{
    if (atomic_fetch_or(&slr_reach_word, SLR_REACH_PAST) & SLR_REACH_PAST)
        return;
    slr_captures_unseen();
    slr_log(SLR_LOG_WARN, "bypassed", "object=%s symbol=%s msg=%s", object && *object ? object : "the program", symbol,
            "its calls do not come through slipring: from now on gathers are waited for at once and staged");
}

/* Not before NCCL is used. Inside of slipring's own calls the thread may hold locks; these open nothing that
 * bypasses it. */
static void join_for_program(void)
{
    if (slr_guard == 0 && atomic_load(&slr_reach_looks))
        join_pending();
}

static int present(struct dl_phdr_info *info, size_t size, void *out)
{
    struct present *p = out;
    (void)size;
    p->objects++;
    p->subs = info->dlpi_subs;
    return 0;
}

static void begin_deep(void)
{
    int saved = errno;
    if (!opening) {
        opening = true;
        atomic_fetch_add(&slr_reach_word, 1);
    }
    pthread_mutex_lock(&lock);
    if (atomic_load(&opened) == atomic_load(&seen_opened)) {
        usual = (struct present){.objects = 0};
        dl_iterate_phdr(present, &usual);
    }
    atomic_fetch_add(&opened, 1);
    pthread_mutex_unlock(&lock);
    join_for_program();
    errno = saved;
}

/* Without the file nothing is opened; what is loaded already stays bound as it is. */
static bool deep(const char *file, int mode)
{
    return file && (mode & RTLD_DEEPBIND) && !(mode & RTLD_NOLOAD);
}

static void ready(void)
{
    if (!atomic_load_explicit(&slr_real_dlsym, memory_order_acquire))
        slr_find_real_dlsym();
}

SLR_EARLY void *slr_dlopen_find(const char *file, int mode)
{
    ready();
    slr_reach_seen();
    if (deep(file, mode))
        begin_deep();
    return NULL;
}

SLR_EARLY void *slr_dlmopen_find(long space, const char *file, int mode)
{
    ready();
    slr_reach_seen();
    if (space != LM_ID_BASE && file && !(mode & RTLD_NOLOAD)) {
        past(file, "dlmopen");
        join_for_program();
    } else if (deep(file, mode)) {
        begin_deep();
    }
    return NULL;
}

/* ---- looking ---- */

/* What the last look has seen; under the lock, the first also read without it. */
static _Atomic unsigned long long seen_adds;
static unsigned long long seen_subs;
static unsigned seen_objects; /* from the front of the list; new ones come behind */
static unsigned seen_reals;
static _Atomic bool late; /* slipring does not come first in the global scope */

struct look {
    unsigned at;    /* the object's place in the list */
    unsigned end;   /* the first that has to be looked at again */
    unsigned usual; /* so many from the front are bound as usual, also lazily */
    bool lazily;    /* in others what is bound lazily counts as bypassing */
    enum slr_imports worst;
    const char *symbol;
    char object[512];
    unsigned long long adds, subs;
};

static int counts(struct dl_phdr_info *info, size_t size, void *out)
{
    struct look *x = out;
    (void)size;
    x->adds = info->dlpi_adds;
    x->subs = info->dlpi_subs;
    return 1;
}

/* Under the linker's lock: nothing that is in the list goes away meanwhile. */
static int each(struct dl_phdr_info *info, size_t size, void *out)
{
    struct look *x = out;
    const char *symbol = NULL;
    if (x->at == 0) {
        counts(info, size, x);
        if (x->subs != seen_subs) /* the places are others */
            seen_objects = 0;
        x->usual = !late && x->subs == usual.subs ? usual.objects : 0;
    }
    if (x->at++ < seen_objects)
        return 0;
    enum slr_imports how = slr_imports_of(info, &symbol);
    if (how == SLR_IMPORTS_LATER)
        how = x->lazily && x->at > x->usual ? SLR_IMPORTS_PAST : SLR_IMPORTS_WELL;
    if (how == SLR_IMPORTS_LOADING && x->end == 0)
        x->end = x->at;
    if (how > x->worst) {
        x->worst = how;
        x->symbol = symbol; /* in the object, which may be unloaded: only for the log, and at once */
        size_t n = 0;
        for (; info->dlpi_name && info->dlpi_name[n] && n + 1 < sizeof x->object; n++)
            x->object[n] = info->dlpi_name[n];
        x->object[n] = 0;
    }
    return how == SLR_IMPORTS_PAST;
}

/* Under the lock. Whether something bypasses. `own`: the calling thread is counted, and opens nothing any more. */
static bool walk(struct look *x, unsigned own)
{
    const unsigned long long now = atomic_load(&opened);
    const bool open = atomic_load(&slr_reach_word) != own;
    const unsigned reals = slr_imports_begin();
    if (reals != seen_reals)
        seen_objects = 0;
    *x = (struct look){.lazily = late || now != atomic_load(&seen_opened)};
    dl_iterate_phdr(each, x);
    if (x->worst == SLR_IMPORTS_PAST)
        return true;
    seen_reals = reals;
    seen_subs = x->subs;
    seen_objects = x->end ? x->end - 1 : x->at;
    /* What is not bound yet while nobody opens anything deep is loaded as usual. */
    if (!open)
        atomic_store(&seen_opened, now);
    if (!open && !x->end)
        atomic_store(&seen_adds, x->adds);
    return false;
}

static void look_as(unsigned own)
{
    struct look x = {.at = 0};
    dl_iterate_phdr(counts, &x);
    if (x.adds == atomic_load(&seen_adds) && atomic_load(&opened) == atomic_load(&seen_opened))
        return;
    pthread_mutex_lock(&lock);
    const bool found = walk(&x, own);
    pthread_mutex_unlock(&lock);
    if (!found)
        return;
    past(x.object, x.symbol);
    join_pending();
}

static void look(void)
{
    slr_reach_seen();
    look_as(0);
}

void slr_reach_install(void)
{
    if (atomic_load_explicit(&slr_reach_looks, memory_order_relaxed))
        return;
    const char *name = "cuGetProcAddress_v2";
    void *first = slr_dlsym(RTLD_DEFAULT, name);
    /* Somebody else's, that stands in front of slipring's, is no reason. */
    atomic_store_explicit(&late, first && slr_is_drivers(name, first),
                          memory_order_relaxed); /* also by a thread beside */
    atomic_store_explicit(&slr_reach_looks, look, memory_order_release);
}
