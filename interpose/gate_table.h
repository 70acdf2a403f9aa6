/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's tables (gate.h): what gate.def says of each function, and where the stubs jump. */
#ifndef SLR_INTERPOSE_GATE_TABLE_H
#define SLR_INTERPOSE_GATE_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include "interpose/gate.h"

enum slr_gate_index {
#define X(sym, cls, arg, why) SLR_GATE_IX_##sym,
#include "interpose/gate.def"
    SLR_GATE_COUNT
};

enum slr_gate_class {
    SLR_GATE_STREAM,
    SLR_GATE_LAUNCH_CONFIG,
    SLR_GATE_RECORD,
    SLR_GATE_RECORD_FLAGS,
    SLR_GATE_WAIT,
    SLR_GATE_EVENT_END,
    SLR_GATE_GRAPH,
    SLR_GATE_ALLOC,
    SLR_GATE_FREE,
    SLR_GATE_QUERY,
    SLR_GATE_CAPTURE_INFO,
    SLR_GATE_LEGACY,
    SLR_GATE_ALL,
    SLR_GATE_COPY,
    SLR_GATE_COPY_2D,
    SLR_GATE_COPY_3D,
    SLR_GATE_COPY_3D_PEER,
    SLR_GATE_NONE
};

struct slr_gate_row {
    const char *name;
    uint8_t class;   /* enum slr_gate_class */
    uint8_t arg;     /* which argument the class is about, counted in machine words */
    uint8_t why;     /* enum slr_reason */
    bool per_thread; /* stream 0 is the calling thread's */
};
extern const struct slr_gate_row slr_gate_rows[SLR_GATE_COUNT];

/* Of spare stubs (slr_gate_spare). A row is written before anybody is given its stub. */
extern struct slr_gate_row slr_gate_spare_rows[SLR_GATE_SPARES];

/* The driver's functions, by index; NULL: it lacks that one. Only to be read when
 * SLR_GATE_UNRESOLVED is not set in slr_gate_word. */
extern void *slr_gate_found[SLR_GATE_COUNT] __attribute__((visibility("hidden")));

/* Where the stubs jump, likewise: to the driver's function, to what stands in front of it
 * (install.h), or, where the driver has none, to slr_gate_missing. Never NULL. */
extern void *slr_gate_real[SLR_GATE_COUNT + SLR_GATE_SPARES];

/* In the child after fork: nothing is pending, and all stubs jump to the driver's functions. */
void slr_gate_after_fork(void);

/* Stands in for a function that the driver lacks: CUDA_ERROR_NOT_FOUND. */
int slr_gate_missing(void);

/* Stubs for forms of gated functions that are only met at run time. */

/* The CUDA_VERSION of the newest cuda.h that gate.def was compared with (tests/hooks/interpose_header.sh). */
#define SLR_GATE_CUDA 13050

/* A stub for `real`, which the driver returned for `symbol` and which is none of gate.def's
 * functions: a form newer than the table, or the same function at another address. `version` is the
 * CUDA version that was asked for, INT_MAX when it is not known: a form that the table's cuda.h can
 * not have joins everything, as the place of its stream is not known. NULL when no function of that
 * name is gated, whatever its form, and when `real` is a form of harmless.def. */
void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real);

#endif
