/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: one stub for each driver entry point of gate.def, exported under the driver's name.
 *
 * A stub compares slr_gate_word with zero and jumps to the real function. When something is
 * pending, or the table of real functions is not filled yet, it saves the argument registers and
 * asks slr_gate_slow, which joins what the call could observe and says where to jump. The stub is
 * transparent: arguments in registers and on the stack, the return address and errno are what the
 * caller made them.
 */
#ifndef SLR_INTERPOSE_GATE_H
#define SLR_INTERPOSE_GATE_H

/* Stubs without a name, for forms of gated functions that are only met at run time (wrappers.c).
 * gate.S builds them side by side. */
#define SLR_GATE_SPARES 256
#if defined(__x86_64__)
#define SLR_GATE_SPARE_SHIFT 5
#else
#define SLR_GATE_SPARE_SHIFT 6
#endif

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stdint.h>

/* Integer arguments as the stub found them; gate.S builds this on the stack, so the two have to
 * agree. */
#if defined(__x86_64__)
#define SLR_GATE_REGS 6
#elif defined(__aarch64__)
#define SLR_GATE_REGS 8
#else
#error "the gate is written for x86-64 and aarch64"
#endif
struct slr_gate_frame {
    const uint64_t *stack; /* the arguments after those, one word each */
    uint64_t reg[SLR_GATE_REGS];
};

/* Called by the stubs. Returns the function to jump to. */
void *slr_gate_slow(unsigned index, const struct slr_gate_frame *frame);

/* ---- the tables: what gate.def says of each function, and where the stubs jump ---- */

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
    SLR_GATE_CONTEXT,
    SLR_GATE_GREEN,
    SLR_GATE_COPY,
    SLR_GATE_COPY_2D,
    SLR_GATE_COPY_3D,
    SLR_GATE_COPY_3D_PEER,
    SLR_GATE_STREAM_COPY,
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
 * (below), or, where the driver has none, to slr_gate_missing. Never NULL. */
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

/* ---- what stands in front of the driver's functions ---- */

/* Driver functions for which a join is not enough. They are gated as all others (gate.def says what
 * they join); behind the gate the stub jumps to a function of alloc.c, connections.c, event.c or graph.c instead of the
 * driver's.
 *
 * Each function below puts those of one file in front of the driver's in slr_gate_real; with
 * SLIPRING_ENABLE=off it does nothing. Once, when the driver's functions have been found and before
 * stubs may jump. */

/* The driver's function that hook_SYM stands in front of. */
#define SLR_FOUND(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

/* Puts hook_SYM in front of it, if the driver has it. */
#define SLR_INSTALL(sym)                                                                                               \
    do {                                                                                                               \
        if (slr_gate_found[SLR_GATE_IX_##sym])                                                                         \
            slr_gate_real[SLR_GATE_IX_##sym] = (void *)hook_##sym;                                                     \
    } while (0)

/* alloc.c: allocations, served by the block cache (cache/blocks.h), unless SLIPRING_ALLOC is off or
 * the driver lacks what the cache needs. Also without the cache: what unmaps or releases virtual
 * memory, unless SLIPRING_ZERO_COPY is off, and what resets or releases a device's context. */
void slr_alloc_install(void);

/* connections.c: cuInit, which reads how many hardware queues there are to be; SLIPRING_CONNECTIONS. */
void slr_connections_install(void);

/* event.c: events and memory (cache/handles.h) that go to other processes, and streams that end. An event whose handle
 * another process has can be recorded there, unseen by this one; so it must not carry a gather
 * (plugin/pending/pending.h). A stream may end on which a communicator has work that others have to
 * come behind (plugin/pending/order.h). */
void slr_event_install(void);

/* graph.c: captures and graphs. When a stream captures, no context is synchronised
 * (cache/blocks.h), and which graphs hold gathers is followed from the capture to the launch
 * (plugin/graphs/graphs.h). As long as none does, these do what the driver's do, after one look at
 * a counter. */
void slr_graph_install(void);

#endif /* __ASSEMBLER__ */
#endif
