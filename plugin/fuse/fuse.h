/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM that may consume a pending gather. */
#ifndef SLR_PLUGIN_FUSE_FUSE_H
#define SLR_PLUGIN_FUSE_FUSE_H

#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"

/* Runs the GEMM: fused with the pending gather that it consumes, else joined and whole. Interpose
 * calls it only when something is pending (slr_gate_word != 0) or GEMMs are looked at (slr_gemm_watch);
 * otherwise it calls the real function at once. Of cublasLtMatmul the call is completed (slr_gemm_describe).
 * CUBLAS_STATUS_EXECUTION_FAILED also when a communicator of the context has failed meanwhile, and the call hung:
 * the streams have been released, and what it computes is worthless (in_call.h). */
cublasStatus_t slr_gemm_call(struct slr_gemm *gemm);

#endif
