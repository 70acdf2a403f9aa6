/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's allocation functions as the application sees them: served by the block cache
 * (cache/blocks.h).
 *
 * The functions are gated as all others (gate.def says what they join); behind the gate the stub
 * jumps to the function of alloc.c instead of the driver's. */
#ifndef SLR_INTERPOSE_ALLOC_H
#define SLR_INTERPOSE_ALLOC_H

/* Puts them in front of the driver's functions in slr_gate_real, unless SLIPRING_ALLOC or
 * SLIPRING_ENABLE is off or the driver lacks what the cache needs; with SLIPRING_ALLOC=off
 * cuMemUnmap only, and with SLIPRING_ZERO_COPY=off nothing. Once, when the driver's functions have
 * been found and before stubs may jump. */
void slr_alloc_install(void);

#endif
