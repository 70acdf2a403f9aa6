/* SPDX-License-Identifier: Apache-2.0 */
/* The whole GEMM in place of its parts, when cuBLAS refuses one after others have been enqueued.
 *
 * cuBLAS can not be asked beforehand whether it takes a part (cublasLtMatmul with an algorithm can:
 * lt_algo.h). It may refuse a later one, because the part lies at an address of another alignment
 * or memory has run out meanwhile. The program called for the whole GEMM and gets that, on a stream
 * that has been joined with the ring:
 *
 *   C is not read   The whole is computed; what parts have written is overwritten. So it is when
 *                   beta is 0 and known to be, on the host, or when the C that is read is another
 *                   matrix than the one that is written.
 *   C may be read   Parts have replaced their columns (rows) of C by results, from which the whole
 *                   would be wrong there. These are copied to memory that is allocated in the
 *                   stream's order, the whole is computed, and they are copied back: each element
 *                   has been computed once, from the C that the program gave.
 *
 * The result is the status of that call: what it refuses, too, the program sees as without slipring.
 * Where C may be read the refusal of the part goes to the program instead when it may have begun to
 * write (an execution, mapping or internal error: then CUDA fails, and the whole would fail
 * likewise), or when there is no memory for the copies.
 *
 * None of this is looked at before a part has been refused, so it costs nothing otherwise. Nothing
 * here waits on the host. Thread-safe, as gemm.h.
 */
#ifndef SLR_KERNELS_GEMM_REDO_H
#define SLR_KERNELS_GEMM_REDO_H

#include "kernels/gemm_parts.h"

/* False only where it is certain that the GEMM does not read what it writes. */
bool slr_gemm_reads_output(const struct slr_gemm *gemm);

/* The first `done` parts of `walk`, which is at its beginning, have been enqueued on `stream`; the
 * next was refused with `refused`. The stream waits for the whole gather. */
cublasStatus_t slr_gemm_redo(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                             unsigned done, CUstream stream, cublasStatus_t refused);

#endif
