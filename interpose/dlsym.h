/* SPDX-License-Identifier: Apache-2.0 */
/* The dynamic linker's functions: the C library's own, and what ours ask. Never call dlsym
 * in this library: it is the hook. */
#ifndef SLR_INTERPOSE_DLSYM_H
#define SLR_INTERPOSE_DLSYM_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef void *(*slr_dlsym_fn)(void *handle, const char *name);
typedef void *(*slr_dlvsym_fn)(void *handle, const char *name, const char *version);

typedef void *(*slr_dlopen_fn)(const char *file, int mode);
typedef void *(*slr_dlmopen_fn)(long space, const char *file, int mode);

/* The C library's; NULL until slr_dlsym_ready has been called. */
extern _Atomic(slr_dlsym_fn) slr_real_dlsym;
extern _Atomic(slr_dlvsym_fn) slr_real_dlvsym;
extern _Atomic(slr_dlopen_fn) slr_real_dlopen;
extern _Atomic(slr_dlmopen_fn) slr_real_dlmopen;

/* Finds them, the first time. Early code (below): it may run before the C library is initialised. */
void slr_dlsym_ready(void);

/* The real dlsym, for this library's own use with an explicit handle. */
void *slr_dlsym(void *handle, const char *name);

/* What dlsym and dlvsym as this library exports them (dlsym.S) ask: what to return instead of the
 * real function's result; NULL: go on to the real function. */
void *slr_dlsym_find(void *handle, const char *name);
void *slr_dlvsym_find(void *handle, const char *name, const char *version);

/* What dlopen and dlmopen as exported ask, likewise; always NULL (reach.c). */
void *slr_dlopen_find(const char *file, int mode);
void *slr_dlmopen_find(long space, const char *file, int mode);

/* reach.c, which finds objects that bypass slipring: once, when NCCL is first used, from when on gathers ask
 * (slr_reach_looks); and: the calling thread is not opening anything any more. The second is early code. */
void slr_reach_install(void);
void slr_reach_seen(void);

/* Finds a symbol without the dynamic linker's look-up functions, which are themselves hooked here:
 * a reference to dlvsym from this library would be bound to the dlvsym that it exports. */

/* What the dynamic section of an object says; NULL and 0 where it says nothing. */
struct slr_elf {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const ElfW(Half) * versions;
    const ElfW(Rela) * rela, *plt;
    size_t rela_bytes, plt_bytes;
};

/* False: it has no symbols. Early code. */
bool slr_elf_open(struct slr_elf *o, const ElfW(Dyn) * dynamic, ElfW(Addr) base);

/* The dynamic section of a loaded object. NULL: it has none, or is this library. */
const ElfW(Dyn) * slr_elf_dynamic(const struct dl_phdr_info *object);

/* The definition of `name` that RTLD_NEXT would find from this library; when no later object
 * defines it, that of any other object. NULL: none. Early code. For symbols of libraries that are
 * never unloaded (the C library's). */
void *slr_elf_next(const char *name);

/* The definition of `name` in one object, which is given by its dynamic section and load address.
 * NULL: not defined there. Early code. */
void *slr_elf_symbol(const ElfW(Dyn) * dynamic, ElfW(Addr) base, const char *name);

/* Whether an address lies in what is loaded of the object. */
bool slr_elf_has(const struct dl_phdr_info *object, uintptr_t at);

/* Code that may run before anything in the process has been initialised: the dynamic linker's
 * look-ups are called by sanitizers' runtimes and by allocators while they start. Such functions
 * are not instrumented, call nothing and take no lock. */

#ifdef __has_attribute
#if __has_attribute(disable_sanitizer_instrumentation)
#define SLR_NO_INSTRUMENTATION __attribute__((disable_sanitizer_instrumentation))
#endif
#endif
#ifndef SLR_NO_INSTRUMENTATION
#define SLR_NO_INSTRUMENTATION
#endif
#define SLR_EARLY                                                                                                      \
    SLR_NO_INSTRUMENTATION                                                                                             \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

#endif
