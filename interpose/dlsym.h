/* SPDX-License-Identifier: Apache-2.0 */
/* The dynamic linker's functions: the C library's own, and what ours ask. Never call dlsym
 * in this library: it is the hook. */
#ifndef SLR_INTERPOSE_DLSYM_H
#define SLR_INTERPOSE_DLSYM_H

#include <stdatomic.h>

typedef void *(*slr_dlsym_fn)(void *handle, const char *name);
typedef void *(*slr_dlvsym_fn)(void *handle, const char *name, const char *version);

typedef void *(*slr_dlopen_fn)(const char *file, int mode);
typedef void *(*slr_dlmopen_fn)(long space, const char *file, int mode);

/* The C library's (real_dlsym.c); NULL until slr_find_real_dlsym has been called. */
extern _Atomic(slr_dlsym_fn) slr_real_dlsym;
extern _Atomic(slr_dlvsym_fn) slr_real_dlvsym;
extern _Atomic(slr_dlopen_fn) slr_real_dlopen;
extern _Atomic(slr_dlmopen_fn) slr_real_dlmopen;

/* Finds them; to be called while slr_real_dlsym is NULL. Early code (early.h): it may run before
 * the C library is initialised. */
void slr_find_real_dlsym(void);

/* The real dlsym, for this library's own use with an explicit handle. */
void *slr_dlsym(void *handle, const char *name);

/* What dlsym and dlvsym as this library exports them (dlsym.S) ask: what to return instead of the
 * real function's result; NULL: go on to the real function. */
void *slr_dlsym_find(void *handle, const char *name);
void *slr_dlvsym_find(void *handle, const char *name, const char *version);

/* What dlopen and dlmopen as exported ask, likewise; always NULL (reach.c). */
void *slr_dlopen_find(const char *file, int mode);
void *slr_dlmopen_find(long space, const char *file, int mode);

#endif
