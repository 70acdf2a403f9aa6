/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/hooked.h"

#include <string.h>
#include "base/real.h"
#include "base/reason.h"
#include "base/wait.h"
#include "interpose/dlsym.h"
#include "interpose/gate.h"

#undef cuGetProcAddress /* cuda.h: cuGetProcAddress_v2 */

const struct slr_hooked slr_hooked[] = {
#define X(sym, cls, arg, why) {#sym, &slr_gate_found[SLR_GATE_IX_##sym], SLR_LIB_CUDA},
#include "interpose/gate.def"
#define L(sym) {#sym, (void *const *)&slr_real_##sym, SLR_LIB_C},
#define P(sym) {#sym, &slr_real_##sym, SLR_LIB_CUDA},
#define N(need, sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_NCCL},
#define B(need, sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLAS},
#define T(need, sym) {#sym, (void *const *)&slr_real.sym, SLR_LIB_CUBLASLT},
#include "base/hooks.def"
};
_Static_assert(SLR_HOOKED * 2 < SLR_HOOKED_BUCKETS, "the tables stay at most half full");

static uint16_t by_name[SLR_HOOKED_BUCKETS];
static struct slr_once ready;

unsigned slr_hooked_bucket(uint64_t key)
{
    return (unsigned)((key * 0x9e3779b97f4a7c15u) >> 54);
}
_Static_assert(SLR_HOOKED_BUCKETS == 1 << (64 - 54), "it yields an index");

void slr_hooked_insert(uint16_t table[SLR_HOOKED_BUCKETS], uint64_t key, unsigned i)
{
    unsigned b = slr_hooked_bucket(key);
    while (table[b])
        b = (b + 1) % SLR_HOOKED_BUCKETS;
    table[b] = (uint16_t)(i + 1);
}

static uint64_t key_of(const char *name)
{
    uint64_t h = 0;
    for (; *name; name++)
        h = h * 131 + (unsigned char)*name;
    return h;
}

const struct slr_hooked *slr_hooked_find(const char *name)
{
    if (slr_once_begin(&ready)) {
        memset(by_name, 0, sizeof(by_name)); /* a child may take over from a parent's thread */
        for (unsigned i = 0; i < SLR_HOOKED; i++)
            slr_hooked_insert(by_name, key_of(slr_hooked[i].name), i);
        slr_once_end(&ready);
    }
    for (unsigned b = slr_hooked_bucket(key_of(name)); by_name[b]; b = (b + 1) % SLR_HOOKED_BUCKETS)
        if (strcmp(slr_hooked[by_name[b] - 1].name, name) == 0)
            return &slr_hooked[by_name[b] - 1];
    return NULL;
}

/* ---- the gate's ---- */

enum { WHY_OP = SLR_R_JOIN_OTHER_OP, WHY_HOST = SLR_R_JOIN_HOST_SYNC };

/* The driver's names of such forms end in _ptsz or _ptds. */
#define PER_THREAD(name) (name[sizeof name - 6] == '_' && name[sizeof name - 5] == 'p' && name[sizeof name - 4] == 't')

const struct slr_gate_row slr_gate_rows[SLR_GATE_COUNT] = {
#define X(sym, cls, arg, why) {#sym, SLR_GATE_##cls, arg, WHY_##why, PER_THREAD(#sym)},
#include "interpose/gate.def"
};

struct slr_gate_row slr_gate_spare_rows[SLR_GATE_SPARES];
void *slr_gate_found[SLR_GATE_COUNT];
void *slr_gate_real[SLR_GATE_COUNT + SLR_GATE_SPARES];

void slr_gate_after_fork(void)
{
    /* The parent's gathers and products. Unresolved stays: the child resolves, and installs nothing. */
    const bool resolved = !(atomic_fetch_and(&slr_gate_word, SLR_GATE_UNRESOLVED) & SLR_GATE_UNRESOLVED);
    atomic_store(&slr_gemm_watch, 0);
    for (unsigned i = 0; resolved && i < SLR_GATE_COUNT; i++)
        slr_gate_real[i] = slr_gate_found[i] ? slr_gate_found[i] : (void *)slr_gate_missing;
}

int slr_gate_missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}
