/* SPDX-License-Identifier: Apache-2.0 */
/* The real vendor functions, as plain function pointers; and the words that the hooks and the
 * layers below share. interpose/ fills the table; everything below calls through it, so that no
 * layer can re-enter a hook by accident and unit tests can run on fakes. A pointer of an optional
 * function (O in real.def) may be NULL. The table is filled before the first use and never changes
 * while a communicator exists. */
#ifndef SLR_BASE_REAL_H
#define SLR_BASE_REAL_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Functions of NCCL that are newer than the nccl.h at hand may be: they are hooked whatever the
 * library is built with. Their structs stay opaque; a configuration that is NULL means the plain
 * function. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
typedef struct slr_wait_signal_desc ncclWaitSignalDesc_t;
ncclResult_t ncclPutSignal(const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,
                           size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
#define NCCL_SUSPEND_MEM 1
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
typedef struct slr_coll_config ncclCollConfig_t;
ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif

/* CUDA 12's header turns these names into older forms than CUDA 13's. The same ones are called
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
#define N D
#define B D
#define T D
#include "base/real.def"
};
extern struct slr_real slr_real;

/* ---- what the hooks know ---- */

/* The word that every driver stub compares with zero before it jumps to the real function
 * (interpose/gate.h). Bit 31: the stubs' table is not filled yet. Bits 0..30: how many gathers are
 * pending, not yet joined to the application's stream. */
#define SLR_GATE_UNRESOLVED 0x80000000u
extern _Atomic unsigned slr_gate_word;

/* Why GEMMs are looked at while nothing is pending; 0: they are not. In the low half gathers whose
 * time is being taken, of all communicators: a GEMM may be what consumes one
 * (plugin/trials/trials.h). Then: a reduce-scatter may follow (plugin/produce/produce.h); and: a handle's stream is
 * to be changed for a GEMM (kernels/gemm_workspace.c), which stays so. */
#define SLR_GEMM_WATCH_TRIALS 0xffffu
#define SLR_GEMM_WATCH_PRODUCTS 0x10000u
#define SLR_GEMM_WATCH_HANDLES 0x20000u
extern _Atomic unsigned slr_gemm_watch;

/* What graphs hold of captured gathers (plugin/graphs/): looked at by each launch, in one
 * instruction as it is hidden. */
extern _Atomic unsigned slr_graphs_held __attribute__((visibility("hidden")));

/* > 0 while this thread runs slipring's own code or a vendor function that it called: hooks then
 * pass straight through. */
extern _Thread_local int slr_guard __attribute__((tls_model("initial-exec")));

/* At this depth of slr_guard what the thread calls is the program's work, so the gate joins what it
 * touches: 0, and the depth of a call of NCCL's that slipring makes for the program. Around such a
 * call; end takes what begin returned. */
extern _Thread_local int slr_guard_program __attribute__((tls_model("initial-exec")));

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

/* ---- what goes past them ---- */

/* A gather may stay pending only while every way to notice is hooked (rule R5). An object whose
 * calls are bound to the vendors' functions themselves *bypasses* slipring: opened with
 * RTLD_DEEPBIND, into a namespace of its own, or before slipring was there. interpose/reach.c finds
 * it before any of its code can come behind a gather that is pending. From then on this rank, which
 * decides what is substituted as before (R1),
 *
 *   - joins each gather at once, and computes no GEMM in parts ahead of a reduce-scatter
 *   - names none of its memory to peers, takes back what it has exported, and keeps no block in the
 *     cache. What the program got through slipring, and such an object frees before peers have closed
 *     it, is freed while others have it mapped, which CUDA leaves undefined
 *   - orders the operations of a communicator by events recorded with them: streams may end unseen
 *   - asks the driver of each stream whether it captures
 *   - takes no calls into graphs of communicators that are not connected yet, which all ranks agree on
 *     (plugin/connect/connect.h) */
#define SLR_REACH_PAST 0x80000000u      /* something bypasses it, and stays */
extern _Atomic unsigned slr_reach_word; /* 0: as far as is known, all calls come through slipring */

/* Of interpose/, when NCCL is first used. NULL: nobody looks. */
extern void (*_Atomic slr_reach_looks)(void);

static inline bool slr_reach_past(void)
{
    return (atomic_load(&slr_reach_word) & SLR_REACH_PAST) != 0;
}

/* That, or a thread is opening what may. To be asked when a gather has become pending: who opens
 * something says so first, and then joins what is pending, so one of the two sees the other. */
static inline bool slr_reach_doubtful(void)
{
    return atomic_load(&slr_reach_word) != 0;
}

/* Looks at what has been loaded since the last time: what it finds shows in the word. For each call
 * that the ring gets, without locks, as what is pending is joined when something is found. */
static inline void slr_reach_look(void)
{
    void (*look)(void) = atomic_load_explicit(&slr_reach_looks, memory_order_acquire);
    if (look && !slr_reach_past())
        look();
}

#endif
