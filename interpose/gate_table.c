/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate_table.h"

#include "base/real.h"
#include "base/reason.h"

enum { WHY_OP = SLR_R_JOIN_OTHER_OP, WHY_HOST = SLR_R_JOIN_HOST_SYNC };

const struct slr_gate_row slr_gate_rows[SLR_GATE_COUNT] = {
#define X(sym, cls, arg, why) {#sym, SLR_GATE_##cls, arg, WHY_##why},
#include "interpose/gate.def"
#undef X
};

struct slr_gate_row slr_gate_spare_rows[SLR_GATE_SPARES];
void *slr_gate_found[SLR_GATE_COUNT];
void *slr_gate_real[SLR_GATE_COUNT + SLR_GATE_SPARES];

int slr_gate_missing(void)
{
    return CUDA_ERROR_NOT_FOUND;
}
