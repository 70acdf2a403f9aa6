/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs: when a stream captures, no context is synchronised (cache/blocks.h), and
 * which graphs hold gathers is followed from the capture to the launch (plugin/gather/graphs.h).
 *
 * The functions are gated as all others; behind the gate the stub jumps to the function of graph.c
 * instead of the driver's. As long as no graph holds a gather those of graphs do what the driver's
 * do, after one look at a counter. */
#ifndef SLR_INTERPOSE_GRAPH_H
#define SLR_INTERPOSE_GRAPH_H

/* Puts them in front of the driver's functions in slr_gate_real, unless SLIPRING_ENABLE is off.
 * Once, when the driver's functions have been found and before stubs may jump. */
void slr_graph_install(void);

#endif
