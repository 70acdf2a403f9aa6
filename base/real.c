/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include "base/real.h"

struct slr_real slr_real;
_Atomic unsigned slr_gate_word = SLR_GATE_UNRESOLVED;
_Atomic unsigned slr_gemm_watch;
_Atomic unsigned slr_graphs_held;
_Thread_local int slr_guard __attribute__((tls_model("initial-exec")));
_Thread_local int slr_guard_program __attribute__((tls_model("initial-exec")));

_Atomic unsigned slr_reach_word;
void (*_Atomic slr_reach_looks)(void);
