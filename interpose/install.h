/* SPDX-License-Identifier: Apache-2.0 */
/* Driver functions for which a join is not enough. They are gated as all others (gate.def says what
 * they join); behind the gate the stub jumps to a function of alloc.c, connections.c, event.c or graph.c instead of the
 * driver's.
 *
 * Each function below puts those of one file in front of the driver's in slr_gate_real; with
 * SLIPRING_ENABLE=off it does nothing. Once, when the driver's functions have been found and before
 * stubs may jump. */
#ifndef SLR_INTERPOSE_INSTALL_H
#define SLR_INTERPOSE_INSTALL_H

#include "interpose/gate_table.h"

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

#endif
