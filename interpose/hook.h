/* SPDX-License-Identifier: Apache-2.0 */
/* What the NCCL and cuBLAS hooks have in common. */
#ifndef SLR_INTERPOSE_HOOK_H
#define SLR_INTERPOSE_HOOK_H

#include <stdbool.h>
#include "base/real.h"
#include "base/settings.h"

/* False: the call goes straight to the real function: slipring is switched off, or the call comes
 * from inside slipring or from a vendor function that slipring called. */
static inline bool slr_hooks_on(void)
{
    return slr_guard == 0 && slr_get(SLR_S_ENABLE) != 0;
}

/* For GEMMs: false when no gather is pending, or the call comes from inside: nothing is to be done.
 */
static inline bool slr_hook_pending(void)
{
    return (atomic_load_explicit(&slr_gate_word, memory_order_relaxed) & ~SLR_GATE_UNRESOLVED) != 0 && slr_guard == 0;
}

/* For cuBLAS's: or the GEMM may be what consumes one that is being measured, or what a reduce-scatter
 * sends. */
static inline bool slr_hook_gemm(void)
{
    return slr_hook_pending() || (atomic_load_explicit(&slr_gemm_watch, memory_order_relaxed) != 0 && slr_guard == 0);
}

/* Marks a function that is exported (it must also be in hooks.def). */
#define SLR_API __attribute__((visibility("default")))

/* A second, hidden name for an exported function of the same file. The exported name may be bound
 * to somebody else's definition. */
#define SLR_HOOK_NAME(fn) extern __typeof__(fn) slr_hook_##fn __attribute__((alias(#fn), visibility("hidden")))

#endif
