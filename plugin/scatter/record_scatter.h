/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters that are captured into a CUDA graph. They are recorded, kept and replayed as gathers are
 * (plugin/gather/record.h), with these differences:
 *
 *   what        all of it is fixed but the numbers in the words: parts of the program's C go into the
 *               peers' slots, and the sums into the program's buffer (kernels/ring_scatter.h). So nothing
 *               has to be mapped, nothing is agreed on at a launch, and a launch waits for nobody's host
 *   memory      the slots, which the communicator keeps as long as a graph holds a call of it; the
 *               program's buffers, as all that is captured uses them
 *   the GEMM    before it, in the same capture: in blocks, if it is expected (plugin/produce/captured.h).
 *               A wrong guess is found while it is captured; then the GEMM is in parts for nothing, in every
 *               replay, and the call sends what stands in C behind all that it comes behind
 *   order       sums and pushes are ordered by edges: kernels/ring_scatter.h says why
 *   words       a replay's numbers follow those of the communicator's calls before it, as a call's outside of
 *               graphs: replays, calls, and gathers in graphs and outside may come in any turn, and peers may
 *               make the same call outside of a graph
 *   failure     as for any call: dead, failed and stopped peers are found by the words, and a launch on a
 *               communicator in error or at its end fails and moves nothing
 *
 * When it is left to NCCL (SLR_R_CAPTURE): for the reasons that a gather is, but for those of the memory; and with
 * SLIPRING_REDUCE_SCATTER=auto unless trials outside of graphs have found the ring to be faster for its size
 * before the first capture of it (trials/capture_way.h): nothing is tried in a graph. Each of these is equal on ranks that do the same. Ranks
 * that differ all the same are found as passed_alone.h says, or as a stall. */
#ifndef SLR_PLUGIN_SCATTER_RECORD_SCATTER_H
#define SLR_PLUGIN_SCATTER_RECORD_SCATTER_H

#include "plugin/gather/record.h"

extern const struct slr_capture slr_capture_scatter;

#endif
