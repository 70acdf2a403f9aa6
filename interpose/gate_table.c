/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include "base/real.h"
#include "base/status.h"

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
