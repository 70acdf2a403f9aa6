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

/* Stubs without a name, for forms of gated functions that are only met at run time (gate_spare.c).
 * gate.S builds them side by side. */
#define SLR_GATE_SPARES 256
#if defined(__x86_64__)
#define SLR_GATE_SPARE_SHIFT 5
#else
#define SLR_GATE_SPARE_SHIFT 6
#endif

#ifndef __ASSEMBLER__
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

#endif /* __ASSEMBLER__ */
#endif
