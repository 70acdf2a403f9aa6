/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs for forms of gated functions that are only met at run time. */
#ifndef SLR_INTERPOSE_GATE_SPARE_H
#define SLR_INTERPOSE_GATE_SPARE_H

/* The CUDA_VERSION of the newest cuda.h that gate.def was compared with (tests/hooks/interpose_header.sh). */
#define SLR_GATE_CUDA 13050

/* A stub for `real`, which the driver returned for `symbol` and which is none of gate.def's
 * functions: a form newer than the table, or the same function at another address. `version` is the
 * CUDA version that was asked for, INT_MAX when it is not known: a form that the table's cuda.h can
 * not have joins everything, as the place of its stream is not known. NULL when no function of that
 * name is gated, whatever its form, and when `real` is a form of harmless.def. */
void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real);

#endif
