/* The gate: one stub for each driver entry point of gate.def, exported under the driver's name.
 *
 * A stub compares slr_gate_word with zero and jumps to the real function. When something is pending, or the table of
 * real functions is not filled yet, it saves the argument registers and asks slr_gate_slow, which joins what the call
 * could observe and says where to jump. The stub is transparent: arguments in registers and on the stack, the return
 * address and errno are what the caller made them.
 */
#ifndef SLR_INTERPOSE_GATE_H
#define SLR_INTERPOSE_GATE_H

/* Stubs without a name, for forms of gated functions that are only met at run time (slr_gate_spare). gate.S builds them
 * side by side. */
#define SLR_GATE_SPARES 256
#if defined(__x86_64__)
#define SLR_GATE_SPARE_SHIFT 5
#else
#define SLR_GATE_SPARE_SHIFT 6
#endif

#ifndef __ASSEMBLER__
#include <stdint.h>

enum slr_gate_index {
#define X(sym, cls, arg, why) SLR_GATE_IX_##sym,
#include "interpose/gate.def"
#undef X
    SLR_GATE_COUNT
};

enum slr_gate_class {
    SLR_GATE_STREAM,
    SLR_GATE_STREAM_PTSZ,
    SLR_GATE_LAUNCH_CONFIG,
    SLR_GATE_LAUNCH_CONFIG_PTSZ,
    SLR_GATE_RECORD,
    SLR_GATE_RECORD_PTSZ,
    SLR_GATE_RECORD_FLAGS,
    SLR_GATE_RECORD_FLAGS_PTSZ,
    SLR_GATE_WAIT,
    SLR_GATE_WAIT_PTSZ,
    SLR_GATE_EVENT_END,
    SLR_GATE_GRAPH,
    SLR_GATE_GRAPH_PTSZ,
    SLR_GATE_LEGACY,
    SLR_GATE_ALL,
    SLR_GATE_NONE
};

/* Integer arguments as the stub found them; gate.S builds this on the stack, so the two have to agree. */
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

/* The driver's functions, by index; NULL: it lacks that one. Only to be read when SLR_GATE_UNRESOLVED is not set in
 * slr_gate_word. */
extern void *slr_gate_found[SLR_GATE_COUNT];

/* Where the stubs jump, likewise: to the driver's function, to what stands in front of it (alloc.h, event.h, graph.h),
 * or, where the driver has none, to slr_gate_missing. Never NULL. */
extern void *slr_gate_real[SLR_GATE_COUNT + SLR_GATE_SPARES];

/* Stands in for a function that the driver lacks: CUDA_ERROR_NOT_FOUND. */
int slr_gate_missing(void);

/* A stub for `real`, which the driver returned for `symbol` and which is none of gate.def's functions: a form newer
 * than the table, or the same function at another address. `version` is the CUDA version that was asked for, INT_MAX
 * when it is not known: a form that the table's cuda.h can not have joins everything, as the place of its stream is not
 * known. NULL when no function of that name is gated, whatever its form. */
void *slr_gate_spare(const char *symbol, int version, int per_thread, void *real);

/* Called by the stubs. Returns the function to jump to. */
void *slr_gate_slow(unsigned index, const struct slr_gate_frame *frame);

#endif /* __ASSEMBLER__ */
#endif
