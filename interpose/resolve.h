/* SPDX-License-Identifier: Apache-2.0 */
/* How the real functions are found.
 *
 * Libraries are found by SONAME among those already loaded, so that a private (RTLD_LOCAL) load is
 * found too; failing that, in whichever loaded object exports the functions (NCCL linked into a
 * framework's library). Nothing is loaded. A library that is found is kept: its functions stay
 * valid until the process ends.
 *
 * Thread-safe. No lock is held while the dynamic linker is called, as its own lock may be held by a
 * caller.
 */
#ifndef SLR_INTERPOSE_RESOLVE_H
#define SLR_INTERPOSE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/gate.h"

enum slr_lib {
    SLR_LIB_CUDA,
    SLR_LIB_NCCL,
    SLR_LIB_CUBLAS,
    SLR_LIB_CUBLASLT,
    SLR_LIB_COUNT,
    SLR_LIB_C = SLR_LIB_COUNT /* always there; dlsym.h has its functions */
};

/* True when the library is loaded; its functions are then in slr_real (and slr_gate_found), those
 * that it lacks as NULL. Tried anew at each call until it is found. Says nothing. */
bool slr_find(enum slr_lib lib);

/* The same without trying; and how many of the libraries are found. */
bool slr_found(enum slr_lib lib);
unsigned slr_found_count(void);

static inline bool slr_find_cuda(void)
{
    return slr_find(SLR_LIB_CUDA);
}

/* True when the library is loaded and has all functions that real.def requires. Otherwise one error
 * line names what is missing. */
bool slr_resolve(enum slr_lib lib);

/* The same of the driver, loaded when nobody has done so: for calls after which NCCL will. */
bool slr_resolve_cuda_load(void);

/* One error line for each function: it was called, and the library that should have it does not. */
void slr_hook_missing(const char *library, const char *function);

/* Whether the export `name` of the driver, or of the NCCL that is followed, is at `real`. */
bool slr_is_drivers(const char *name, const void *real);
bool slr_is_nccls(const char *name, const void *real);

/* The real cuGetProcAddress and cuGetProcAddress_v2; NULL until the driver is found, or when it
 * lacks them. */
extern void *slr_real_cuGetProcAddress, *slr_real_cuGetProcAddress_v2;

/* ---- all functions that are hooked (gate.def, base/hooks.def), by name ---- */

enum {
    SLR_HOOKED_BY_HAND = 0
#define L(sym) +1
#define P(sym) +1
#define N(need, sym) +1
#define B N
#define T N
#include "base/hooks.def"
    ,
    SLR_HOOKED = SLR_GATE_COUNT + SLR_HOOKED_BY_HAND,
    SLR_HOOKED_BUCKETS = 1024
};

struct slr_hooked {
    const char *name;
    void *const *real; /* where the real one is, once its library is found; NULL: it lacks that one */
    enum slr_lib lib;
};
extern const struct slr_hooked slr_hooked[SLR_HOOKED];

const struct slr_hooked *slr_hooked_find(const char *name); /* NULL: not hooked */

/* Tables of these, open addressing: an entry is an index plus one, 0 none. */
unsigned slr_hooked_bucket(uint64_t key);
void slr_hooked_insert(uint16_t table[SLR_HOOKED_BUCKETS], uint64_t key, unsigned i);

#endif
