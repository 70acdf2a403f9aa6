/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/resolve.h"

#include <string.h>
#include "base/real.h"
#include "base/wait.h"
#include "interpose/dlsym.h"

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
