/* SPDX-License-Identifier: Apache-2.0 */
/* alpha and beta of a GEMM: their type, where they are, and what the host can know of them.
 *
 * Thread-safe. Of a cublasLtMatmul, after slr_gemm_describe().
 */
#ifndef SLR_KERNELS_GEMM_SCALARS_H
#define SLR_KERNELS_GEMM_SCALARS_H

#include "kernels/gemm.h"

/* False when the type is not known. */
bool slr_gemm_scalar_type(const struct slr_gemm *gemm, cudaDataType *type);

/* False also when it can not be told. */
bool slr_gemm_scalars_on_host(const struct slr_gemm *gemm);

/* True only where it is certain: beta is on the host, of a known type, and that number. -0 is taken
 * for another number than 0. */
bool slr_gemm_beta_is_zero(const struct slr_gemm *gemm);
bool slr_gemm_beta_is_one(const struct slr_gemm *gemm); /* of fp32 and fp64 only */

/* 1 as a scalar of the type, on the host; NULL for types other than fp32 and fp64. */
const void *slr_gemm_one(cudaDataType type);

#endif
