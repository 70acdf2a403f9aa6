/* The C library's look-up functions: the real ones, and what the exported ones (dlsym.S) ask. */
#ifndef SLR_INTERPOSE_DLSYM_H
#define SLR_INTERPOSE_DLSYM_H

#include <stdatomic.h>

typedef void *(*slr_dlsym_fn)(void *handle, const char *name);
typedef void *(*slr_dlvsym_fn)(void *handle, const char *name, const char *version);

/* Set before either find function returns. Never call dlsym in this library: it is the hook. */
extern _Atomic(slr_dlsym_fn) slr_real_dlsym;
extern _Atomic(slr_dlvsym_fn) slr_real_dlvsym;

/* The real dlsym, for this library's own use with an explicit handle. */
void *slr_dlsym(void *handle, const char *name);

/* What to return instead of the real function's result; NULL: go on to the real function. */
void *slr_dlsym_find(void *handle, const char *name);
void *slr_dlvsym_find(void *handle, const char *name, const char *version);

#endif
