/* SPDX-License-Identifier: Apache-2.0 */
/* The real vendor functions, as plain function pointers. interpose/ fills the table; everything
 * below calls through it, so that no layer can re-enter a hook by accident and unit tests can run
 * on fakes.
 *
 * A pointer of an optional function (O in real.def) may be NULL. The tables are filled before the
 * first use and never change while a communicator exists. */
#ifndef SLR_BASE_REAL_H
#define SLR_BASE_REAL_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/nccl_later.h"

/* CUDA 12's header turns these names into older forms than CUDA 13's does. Called are the same ones
 * whatever it is built with: of these only cuDeviceGetUuid_v2 has to exist (CUDA 11.4). */
#if CUDA_VERSION < 13000
#undef cuDeviceGetUuid
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#undef cuEventElapsedTime
#define cuEventElapsedTime cuEventElapsedTime_v2
#undef cuGraphNodeGetDependentNodes
#define cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3
#endif

/* cublas_api.h declares these for C++ only; half values are 16-bit words to C. */
#ifndef __cplusplus
cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                           int k, const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta,
                           void *c, int ldc);
cublasStatus_t cublasHgemm_64(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m,
                              int64_t n, int64_t k, const void *alpha, const void *a, int64_t lda, const void *b,
                              int64_t ldb, const void *beta, void *c, int64_t ldc);
#endif

#if CUBLAS_VER_MAJOR < 13
cublasStatus_t cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int **bits);
#endif

struct slr_real {
#define D(need, fn) __typeof__(&fn) fn;
#define N(need, fn) __typeof__(&fn) fn;
#define B(need, fn) __typeof__(&fn) fn;
#define T(need, fn) __typeof__(&fn) fn;
#include "base/real.def"
#undef D
#undef N
#undef B
#undef T
};
extern struct slr_real slr_real;

/* The word that every driver stub compares with zero before it jumps to the real function
 * (interpose/gate.h). Bit 31: the stubs' table is not filled yet. Bits 0..30: how many gathers are
 * pending, i.e. not yet joined to the application's stream. */
#define SLR_GATE_UNRESOLVED 0x80000000u
extern _Atomic unsigned slr_gate_word;

/* Why GEMMs are looked at while nothing is pending; 0: they are not. In the low half gathers whose time
 * is being taken, of all communicators: a GEMM may be what consumes one (plugin/trials/trials.h). Then: a
 * reduce-scatter may follow (plugin/produce/produce.h). */
#define SLR_GEMM_WATCH_TRIALS 0xffffu
#define SLR_GEMM_WATCH_PRODUCTS 0x10000u
extern _Atomic unsigned slr_gemm_watch;

/* What graphs hold of captured gathers (plugin/graphs/graphs.h, recorded.h): looked at by each launch.
 * Hidden, so that this is one instruction. */
extern _Atomic unsigned slr_graphs_held __attribute__((visibility("hidden")));

/* > 0 while this thread runs slipring's own code or a vendor function that slipring called: hooks
 * then pass straight through. */
extern _Thread_local int slr_guard __attribute__((tls_model("initial-exec")));

/* At this depth of slr_guard what the thread calls is the program's work, so the gate joins what it
 * touches: 0, and the depth of a call of NCCL's that slipring makes for the program. */
extern _Thread_local int slr_guard_program __attribute__((tls_model("initial-exec")));

/* Around such a call; end takes what begin returned. */
static inline int slr_program_begin(void)
{
    int outer = slr_guard_program;
    slr_guard_program = slr_guard;
    return outer;
}

static inline void slr_program_end(int outer)
{
    slr_guard_program = outer;
}

#endif
