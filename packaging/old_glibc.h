/* SPDX-License-Identifier: Apache-2.0 */
/* What is built with this header first (SLIPRING_GLIBC_2_28, cmake/OldGlibc.cmake) runs with glibc 2.28 and later,
 * wherever it is built: for the Python wheel.
 *
 * The code needs nothing that 2.28 lacks. But since 2.34 the C library has the functions of libpthread and libdl, under
 * versions that older ones do not know, and stat() and fstat() are functions since 2.33. The old names are there in all of
 * them. packaging/wheel.py looks at what came of it: a function that is missing here makes the wheel's tag a later one. */
#ifndef SLR_OLD_GLIBC_H
#define SLR_OLD_GLIBC_H

#include <string.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#define SLR_OLD_STAT 1 /* _STAT_VER, as it was */
#define OLD(name, version) __asm__(".symver " #name "," #name "@GLIBC_" version);
#elif defined(__aarch64__)
#define SLR_OLD_STAT 0
#define OLD(name, version) __asm__(".symver " #name "," #name "@GLIBC_2.17"); /* the first one that there is */
#else
#error "SLIPRING_GLIBC_2_28: the versions are known for x86_64 and aarch64 only"
#endif

OLD(dladdr, "2.2.5")
OLD(dlclose, "2.2.5")
OLD(dlerror, "2.2.5")
OLD(dlinfo, "2.3.3")
OLD(dlopen, "2.2.5")
#ifdef SLR_OLD_DLSYM /* programs; the library has a dlsym of its own */
OLD(dlsym, "2.2.5")
#endif
OLD(pthread_create, "2.2.5")
OLD(pthread_detach, "2.2.5")
OLD(pthread_join, "2.2.5")
OLD(pthread_key_create, "2.2.5")
OLD(pthread_mutex_timedlock, "2.2.5")
OLD(pthread_mutex_trylock, "2.2.5")
OLD(pthread_once, "2.2.5")
OLD(pthread_rwlock_rdlock, "2.2.5")
OLD(pthread_rwlock_trywrlock, "2.2.5")
OLD(pthread_rwlock_unlock, "2.2.5")
OLD(pthread_rwlock_wrlock, "2.2.5")
OLD(pthread_setname_np, "2.12")
OLD(pthread_setspecific, "2.2.5")
OLD(pthread_sigmask, "2.2.5")
#undef OLD

/* glibc 2.38 and later name the functions that also read binary numbers otherwise. */
#if defined(__x86_64__)
#define OLD(name) __asm__(".symver __isoc23_" #name "," #name "@GLIBC_2.2.5");
#else
#define OLD(name) __asm__(".symver __isoc23_" #name "," #name "@GLIBC_2.17");
#endif
OLD(strtol)
OLD(strtoll)
OLD(strtoul)
OLD(strtoull)
#undef OLD

extern int __xstat(int version, const char *path, struct stat *st);
extern int __fxstat(int version, int fd, struct stat *st);
#define stat(path, st) __xstat(SLR_OLD_STAT, path, st)
#define fstat(fd, st) __fxstat(SLR_OLD_STAT, fd, st)
#define strerrordesc_np(error) strerror(error)

#endif
