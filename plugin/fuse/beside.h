/* SPDX-License-Identifier: Apache-2.0 */
/* What GEMMs a pending gather has had beside it before one consumes it: a gather that an unrelated
 * GEMM has hidden is there, and need not be waited for in parts. Training with sequence parallelism
 * gathers so: the gradient of the input runs beside it, then that of the weight consumes it.
 *
 * Counted are the GEMMs of hooked calls that the asking thread has made since the gather, on
 * whatever stream of its context. Only its own: what one thread does is equal on all ranks of a
 * program, how several threads come to run is not, and ranks should decide alike.
 *
 * Thread-safe. Costs nothing while nothing is pending.
 */
#ifndef SLR_PLUGIN_FUSE_BESIDE_H
#define SLR_PLUGIN_FUSE_BESIDE_H

#include "kernels/gemm.h"
#include "plugin/comm/comm.h"

/* The calling thread has put the GEMM on a stream of the context. A cublasLtMatmul is described
 * (slr_gemm_describe) if it has not been. */
void slr_beside_note(struct slr_gemm *gemm, CUcontext ctx);

/* How much that has been since the communicator's pending gather, in operations of a 16-bit GEMM.
 * Under the communicator's lock. */
double slr_beside(const struct slr_comm *c);

#endif
