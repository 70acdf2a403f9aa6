/* SPDX-License-Identifier: Apache-2.0 */
/* Finds objects that bypass slipring (base/real.h).
 *
 * An object that is loaded as usual binds to slipring: preloaded, it comes before the vendors' libraries
 * in the scope that all objects begin with. Other ways:
 *
 *   RTLD_DEEPBIND           the object, and what is loaded for it, begin with their own scope
 *   a namespace (dlmopen)   its objects can not be looked at; they count as bypassing
 *   before slipring         it was not preloaded but opened later, into the global scope
 *   the program hands out   dlopen or dlsym of the C library's own handle: not followed
 *
 * Of what is linked with -Bsymbolic to definitions of its own nothing is to be found: a copy of NCCL or of
 * cuBLAS in it is not the one that is followed, and reaches the driver by the hooked dlsym.
 *
 * How it shows. Imports of such an object have been bound to the very function that slipring stands for
 * (enum imports): to the driver's, NCCL's or cuBLAS's, or to the C library's dlsym, with which it can get
 * these. Where imports are bound lazily nothing shows yet: in what was loaded since something has been opened with
 * RTLD_DEEPBIND and not been looked at, and in all if slipring was opened late, that counts as bypassing.
 *
 * When it is looked. Each gather compares the linker's count of loaded objects with that of the last look,
 * and looks at the new ones if it differs. That is before the gather may stay pending. What is pending
 * already when an object is loaded is another matter: its first code may come behind the gather. So
 *
 *   1. a thread that is about to open with RTLD_DEEPBIND counts itself in slr_reach_word (dlopen is
 *      hooked), and then joins all that is pending;
 *   2. a gather becomes pending, and then its thread looks at that word: not 0, and it is joined at once.
 *
 * Whichever comes first, no gather is pending when the object's code, its constructors included, begins.
 * Objects are in the linker's list, and bound, before the first of their constructors runs. The hook
 * jumps to the real dlopen and never comes back, as that needs the caller's return address; so the thread
 * is counted until it is *seen* again: it looks something up (dlsym), opens something else, or gathers. Each
 * of these shows that its object is in the list and bound, or that it could not be opened; then the count
 * of objects tells. A thread that is never seen again costs the overlap, nothing else.
 *
 * What is pending under a lock that another thread holds for longer than a moment, as that waits in the
 * driver, is not waited for here: that could be for ever. An object that is opened just then, and whose code
 * works on that very stream before the other thread's call has ended, is not served.
 *
 * Thread-safe; the lock is innermost but for the linker's, which is held for moments.
 */
#include "interpose/dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include "base/log.h"
#include "base/real.h"
#include "cache/captures.h"
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

SLR_EARLY void *slr_dlopen_find(const char *file, int mode)
{
    slr_dlsym_ready();
    slr_reach_seen();
    if (deep(file, mode))
        begin_deep();
    return NULL;
}

SLR_EARLY void *slr_dlmopen_find(long space, const char *file, int mode)
{
    slr_dlsym_ready();
    slr_reach_seen();
    if (space != LM_ID_BASE && file && !(mode & RTLD_NOLOAD)) {
        past(file, "dlmopen");
        join_for_program();
    } else if (deep(file, mode)) {
        begin_deep();
    }
    return NULL;
}

/* ---- an object ---- */

/* How a loaded object's calls of hooked functions are bound: read from its dynamic relocations and the
 * addresses that the dynamic linker has put in their places. */
enum imports {
    IMPORTS_WELL,    /* to slipring, to nothing that is hooked, or to what somebody else has put in front of it */
    IMPORTS_LATER,   /* lazily: some are not bound yet */
    IMPORTS_LOADING, /* the linker has not come to all of them */
    IMPORTS_PAST     /* some to the very function that slipring stands for */
};

#if defined(__x86_64__)
enum { CALL = R_X86_64_JUMP_SLOT, ADDRESS = R_X86_64_GLOB_DAT, POINTER = R_X86_64_64 };
#elif defined(__aarch64__)
enum { CALL = R_AARCH64_JUMP_SLOT, ADDRESS = R_AARCH64_GLOB_DAT, POINTER = R_AARCH64_ABS64 };
#endif

/* A library's calls of its own functions are none of slipring's business. */
static enum imports bound(const struct dl_phdr_info *info, const char *name, uintptr_t to, bool call)
{
    const struct slr_hooked *h = slr_hooked_find(name);
    if (!h)
        return IMPORTS_WELL;
    const void *real = slr_found(h->lib) ? *h->real : NULL;
    if (real && to == (uintptr_t)real)
        return slr_elf_has(info, to) ? IMPORTS_WELL : IMPORTS_PAST;
    if (call && slr_elf_has(info, to)) /* into its procedure linkage table */
        return IMPORTS_LATER;
    /* Still what the file has there: nothing, or an offset. No object lies so low. */
    if (to < info->dlpi_addr && (to == 0 || (call && slr_elf_has(info, to + info->dlpi_addr))))
        return IMPORTS_LOADING;
    return IMPORTS_WELL;
}

struct object {
    const struct dl_phdr_info *info;
    struct slr_elf elf;
};

static enum imports relocations(const struct object *o, const ElfW(Rela) * rela, size_t bytes, const char **symbol)
{
    const size_t n = rela ? bytes / sizeof *rela : 0;
    enum imports worst = IMPORTS_WELL;
    for (size_t i = 0; i < n && worst != IMPORTS_PAST; i++) {
        const unsigned type = (unsigned)ELF64_R_TYPE(rela[i].r_info);
        if (type != CALL && type != ADDRESS && type != POINTER)
            continue;
        const ElfW(Sym) *s = &o->elf.symbols[ELF64_R_SYM(rela[i].r_info)];
        const char *name = o->elf.strings + s->st_name;
        const bool wanted = (*name == 'c' && name[1] == 'u') || *name == 'n' || *name == 'd';
        /* What it defines itself is its own (-Bsymbolic), or whoever comes first, as with any import. */
        if (!wanted)
            continue;
        const uintptr_t to = *(const uintptr_t *)(o->info->dlpi_addr + rela[i].r_offset);
        const enum imports how = bound(o->info, name, to, type == CALL);
        if (how > worst) {
            worst = how;
            *symbol = name;
        }
    }
    return worst;
}

/* *symbol: by which import it is so; stays as it is when all is well. What is found depends on which libraries are. */
static enum imports imports_of(const struct dl_phdr_info *info, const char **symbol)
{
    struct object o = {.info = info};
    if (!slr_elf_open(&o.elf, slr_elf_dynamic(info), info->dlpi_addr))
        return IMPORTS_WELL;
    const enum imports data = relocations(&o, o.elf.rela, o.elf.rela_bytes, symbol);
    if (data == IMPORTS_PAST)
        return data;
    const char *by = *symbol;
    const enum imports calls = relocations(&o, o.elf.plt, o.elf.plt_bytes, &by);
    if (calls > data)
        *symbol = by;
    return calls > data ? calls : data;
}

/* ---- looking ---- */

/* What the last look has seen; under the lock, the first also read without it. */
static _Atomic unsigned long long seen_adds;
static unsigned long long seen_subs;
static unsigned seen_objects; /* from the front of the list; new ones come behind */
static unsigned seen_libraries;
static _Atomic bool late; /* slipring does not come first in the global scope */

struct look {
    unsigned at;    /* the object's place in the list */
    unsigned end;   /* the first that has to be looked at again */
    unsigned usual; /* so many from the front are bound as usual, also lazily */
    bool lazily;    /* in others what is bound lazily counts as bypassing */
    enum imports worst;
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
    enum imports how = imports_of(info, &symbol);
    if (how == IMPORTS_LATER)
        how = x->lazily && x->at > x->usual ? IMPORTS_PAST : IMPORTS_WELL;
    if (how == IMPORTS_LOADING && x->end == 0)
        x->end = x->at;
    if (how > x->worst) {
        x->worst = how;
        x->symbol = symbol; /* in the object, which may be unloaded: only for the log, and at once */
        size_t n = 0;
        for (; info->dlpi_name && info->dlpi_name[n] && n + 1 < sizeof x->object; n++)
            x->object[n] = info->dlpi_name[n];
        x->object[n] = 0;
    }
    return how == IMPORTS_PAST;
}

/* Under the lock. Whether something bypasses. `own`: the calling thread is counted, and opens nothing any more. */
static bool walk(struct look *x, unsigned own)
{
    const unsigned long long now = atomic_load(&opened);
    const bool open = atomic_load(&slr_reach_word) != own;
    const unsigned libraries = slr_found_count();
    if (libraries != seen_libraries)
        seen_objects = 0;
    *x = (struct look){.lazily = late || now != atomic_load(&seen_opened)};
    dl_iterate_phdr(each, x);
    if (x->worst == IMPORTS_PAST)
        return true;
    seen_libraries = libraries;
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
