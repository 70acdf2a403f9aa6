/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM that consumes a gathered buffer, or produces what a reduce-scatter sends, and its parts.
 *
 * cuBLAS is column-major: C (m x n) = alpha op(A) (m x k) op(B) (k x n) + beta C. A part is made of
 * some of the gathered operand's stored columns. In two forms these are columns or rows of C, so
 * every element of C is computed by one call, as in the whole GEMM; in two C is a sum over them,
 * and each part a summand: the first has the caller's beta, the others add to C.
 *
 *   form      gathered operand   its stored columns are   part [c, c + w)
 *   B, op N   B, k x n           columns of C             B + c ldb, C + c ldc, n = w
 *   A, op T   A, k x m           rows of C                A + c lda, C + c, m = w
 *   B, op T   B, n x k           columns of op(A)         B + c ldb, op(A)'s columns c.., k = w, summed
 *   A, op N   A, m x k           rows of op(B)            A + c lda, op(B)'s rows c.., k = w, summed
 *
 * Op C on real types is op T. Of a batch all matrices share the gathered operand (stride 0); a part
 * is a part of each of them. The gathered operand must be the whole receive buffer without padding
 * (ld = its stored rows), so that the shards are column ranges. */
#ifndef SLR_KERNELS_GEMM_H
#define SLR_KERNELS_GEMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

/* Which real function computes the GEMM and its parts. */
enum slr_gemm_api {
    SLR_GEMM_EX,
    SLR_GEMM_EX_64,
    SLR_GEMM_S,
    SLR_GEMM_S_64,
    SLR_GEMM_D,
    SLR_GEMM_D_64,
    SLR_GEMM_H,
    SLR_GEMM_H_64,
    SLR_GEMM_STRIDED_EX,
    SLR_GEMM_STRIDED_EX_64,
    SLR_GEMM_LT
};

struct slr_lt; /* the rest of a cublasLtMatmul call: gemm_lt.h */
struct slr_gather;
struct slr_ring;

struct slr_extent {
    uintptr_t begin, end;
};

static inline bool slr_extents_meet(struct slr_extent a, struct slr_extent b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* How many ranges a call reads besides a and b, and writes besides c, at most. */
enum { SLR_GEMM_READS = 8, SLR_GEMM_WRITES = 5 };

/* Ranges of memory, some of which may be empty. */
struct slr_ranges {
    unsigned n;
    struct slr_extent x[4 + SLR_GEMM_READS + 1 + SLR_GEMM_WRITES];
};

/* One call as its entry point got it; leading dimensions and strides in elements. Of cublasLtMatmul
 * the entry point gives lt, alpha, beta, a, b and c, which is its D; slr_gemm_describe() fills in
 * the rest from the descriptors. */
struct slr_gemm {
    enum slr_gemm_api api;
    cublasHandle_t handle;
    cublasOperation_t transa, transb;
    int64_t m, n, k;
    const void *alpha, *beta; /* host or device, as the handle's pointer mode says */
    const void *a, *b;
    void *c;
    cudaDataType atype, btype, ctype; /* set for every api (CUDA_R_32F for S, ...) */
    int64_t lda, ldb, ldc;
    int64_t stride_a, stride_b, stride_c; /* 0 for the unbatched entry points */
    int64_t batch;                        /* and 1 */
    cublasComputeType_t compute;          /* of the Ex entry points; otherwise unused */
    cublasGemmAlgo_t algo;
    struct slr_lt *lt; /* of cublasLtMatmul, else NULL */
    /* By slr_gemm_describe(): what the call reads besides a and b, and writes besides c; or empty.
     * First the C of a cublasLtMatmul; and the workspace, of the call or of the handle. */
    struct slr_extent read[SLR_GEMM_READS], written[SLR_GEMM_WRITES];
    const char *attribute; /* by slr_gemm_describe: which one is not understood, or NULL */
};

/* How a GEMM splits along a gathered operand. Columns are stored columns of that operand. */
struct slr_gemm_split {
    bool on_a;          /* the gathered operand is A, else B */
    bool sums;          /* parts are summands of C: A has op N, or B op T */
    int64_t shard_cols; /* columns in one rank's shard */
    size_t col_bytes;
    int64_t other;         /* C's size along the other operand; of a batch, of all its matrices */
    int64_t rows;          /* the gathered operand's, as stored: k, or of summands C's size along it */
    int64_t first;         /* columns of the operand before the gathered ones, which are some of it; else 0 */
    bool some;             /* they are */
    int64_t quantum;       /* parts begin at multiples of it, a power of two */
    const char *attribute; /* for which there is no split, or NULL */
    double pace;           /* gemm_parts.h; from here on the caller's: slr_gemm_split_find leaves them alone */
    double head;    /* of summands: what the gather has had already, beside other GEMMs, in columns' time of this one */
    bool needs_all; /* there are none, as the sum is not split */
    uint32_t parts; /* of equal size, that are wanted; 0: by the pace */
};

static inline size_t slr_gemm_split_elem(const struct slr_gemm_split *split)
{
    return split->rows > 0 ? split->col_bytes / (size_t)split->rows : 0;
}

/* ---- facts, without a call of cuBLAS but for a handle's pointer mode: gemm_facts.c ---- */

/* Bytes of an element; 0 for types that are not split (complex, sub-byte, unknown). */
size_t slr_gemm_type_bytes(cudaDataType type);

/* What a matrix takes in memory, column-major, ld >= rows; empty when it has no element. */
struct slr_extent slr_gemm_extent(const void *p, int64_t rows, int64_t cols, int64_t ld, size_t elem);

bool slr_gemm_scalar_type(const struct slr_gemm *gemm, cudaDataType *type); /* false when the type is not known */

/* True only where it is certain: beta is on the host, and that number, which -0 is not. */
bool slr_gemm_beta_is_zero(const struct slr_gemm *gemm);

/* False only where it is certain that the GEMM does not read what it writes. */
bool slr_gemm_reads_output(const struct slr_gemm *gemm);

/* SLIPRING_SPLIT_K, in its order: which sums are split, as that changes where they are rounded. */
enum slr_sums { SLR_SUMS_OFF, SLR_SUMS_ACCUMULATE, SLR_SUMS_ALL };

/* For a described GEMM with slr_gemm_split.sums. SLR_R_FUSED, or why its sum is not split. */
enum slr_reason slr_gemm_may_sum(const struct slr_gemm *gemm, enum slr_sums which);

/* Whether the described GEMM, of which `on_a` (A, else B) is gathered, sums over the gathered
 * dimension, unsplit. */
bool slr_gemm_needs_all(const struct slr_gemm *gemm, bool on_a, enum slr_sums which);

/* The GEMM as a later part of its sum: it adds to what it writes. *lt, written for a
 * cublasLtMatmul, has to live as long. */
struct slr_gemm slr_gemm_adding(const struct slr_gemm *gemm, struct slr_lt *lt);

/* ---- what it has to do with a gather: gemm_split.c ---- */

/* Completes a call, from the descriptors or the handle. SLR_R_FUSED, or why it is not split. No
 * lock is held over cuBLAS. */
enum slr_reason slr_gemm_describe(struct slr_gemm *gemm);

/* Whether the GEMM can be split along the buffer that `g` gathers; of one that sums over it,
 * slr_gemm_may_sum() has to be asked as well. SLR_R_FUSED and *out, or the reason why not and, if
 * that is an attribute's, out->attribute. */
enum slr_reason slr_gemm_split_find(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks,
                                    struct slr_gemm_split *out);

/* What a described GEMM reads of the buffer that `g` gathers, in a word for the log: "elsewhere",
 * nothing; "inside", an operand begins within it; "part", one begins where it does and is smaller;
 * "more", and is larger; "all"; "unknown". *bytes: of that operand. Pure, as what follows. */
const char *slr_gemm_reads(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks, size_t *bytes);

/* Whether the memory has nothing in common with the gather's buffers. */
bool slr_extent_apart(struct slr_extent x, const struct slr_gather *g, int nranks);

/* Whether it reads nothing that `g` writes and writes nothing that `g` reads or writes. False when
 * it can not be told. */
bool slr_gemm_apart(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks);

/* All that a described GEMM reads and writes, but what the real function has allocated itself. */
struct slr_ranges slr_gemm_ranges(const struct slr_gemm *gemm);
bool slr_ranges_meet(const struct slr_ranges *ranges, struct slr_extent x);

/* Whether two described GEMMs may run in any order, or at once, if their workspaces differ: neither
 * writes what the other reads or writes. */
bool slr_gemms_apart(const struct slr_gemm *first, const struct slr_gemm *second);

/* ---- calls of the real function that the program called: gemm_call.c ---- */

cublasStatus_t slr_gemm_whole(const struct slr_gemm *gemm);

/* The part of C that the stored columns [col, col + cols) of the gathered operand determine; or
 * their summand, with the GEMM's beta. Ready: false if cuBLASLt says that it has no algorithm for
 * that part; others can not be asked beforehand. */
cublasStatus_t slr_gemm_part(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col,
                             int64_t cols);
bool slr_gemm_part_ready(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col, int64_t cols);

/* For a reduce-scatter, which sends a GEMM's output in blocks of whole columns. Whether the
 * described GEMM's C is `nranks` shards of `shard` bytes, each of whole columns, that may be
 * computed apart and twice: it does not read C. *quantum: blocks begin at multiples of it, a power
 * of two. */
bool slr_gemm_blocks(const struct slr_gemm *gemm, int nranks, size_t shard, int64_t *quantum);

/* The columns [col, col + cols) of C: each element is computed by one call, as in the whole. Ready:
 * as of parts. */
cublasStatus_t slr_gemm_block(const struct slr_gemm *gemm, int64_t col, int64_t cols);
bool slr_gemm_block_ready(const struct slr_gemm *gemm, int64_t col, int64_t cols);

/* ---- the GEMM behind a gather: gemm_fused.c ---- */

/* NCCL's kernels between hosts come and go beside a GEMM's parts, which would keep them out to their ends, with a block for
 * each multiprocessor: so these leave `blocks` free, from here on. Not where the program has chosen its algorithm (cublasLt).
 * What is to be given back by the other one; -1: nothing. */
int slr_gemm_leave_room(const struct slr_gemm *gemm, unsigned blocks);
void slr_gemm_take_room(const struct slr_gemm *gemm, int target);

/* Enqueues the GEMM on the application's stream in parts, in the order of gemm_parts.h, each behind
 * the events of the last chunks that it reads; last the stream is joined with the ring. One caller
 * at a time for one ring; one that waits in cuBLAS holds no lock. It ends as the whole GEMM would.
 * *parts, the calls that C is made of, is
 *
 *   0   when cuBLAS does not take the first part, or has no algorithm for one: nothing was computed
 *       and the stream is not joined. The caller joins it and runs the whole.
 *   1   SLR_GEMM_REDONE: cuBLAS refused a later part. The stream was joined, the whole ran, and the
 *       status is what the application gets (gemm_fused.c). Where the gather is some of the operand (split->some)
 *       the whole is the caller's to run.
 *   2.. otherwise; an error is CUDA's then: the ring could not be joined */
#define SLR_GEMM_REDONE 1
cublasStatus_t slr_gemm_fused(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *split, unsigned *parts);

/* ---- a GEMM that reads all of a gathered buffer, beside the one behind it: gemm_aside.c ---- */

/* Enqueues the described GEMM, called on `stream`, aside: docs/protocol.md, "A sum that is not
 * split", says who waits for what. True: *result is what the application gets. False: it was not
 * enqueued, and may be as it is. One caller at a time for one ring; its context is current. */
bool slr_gemm_aside(struct slr_ring *ring, const struct slr_gemm *gemm, CUstream stream, cublasStatus_t *result);

/* Makes the stream wait for the latest one. */
enum slr_status slr_gemm_aside_join(struct slr_ring *ring, CUstream stream);

/* ---- workspaces that a program has given to cuBLAS's handles: gemm_workspace.c ---- */

/* Scratch memory that every call with the handle may overwrite, until it gets another, its stream
 * is set, or it is destroyed. The default pool is cuBLAS's own. Thread-safe. The hooks tell, when
 * the real call has succeeded; nothing is paid where no handle has ever had one. */
void slr_workspace_set(cublasHandle_t handle, const void *p, size_t bytes);
void slr_workspace_reset(cublasHandle_t handle);

void slr_workspace_forget(cublasHandle_t handle); /* about to be destroyed: the next one may have its address */

extern _Atomic bool slr_workspaces; /* some handle has, or had, one */

/* Around a GEMM with the handle, which may have a workspace, while GEMMs are looked at. Enter waits
 * while the handle is taken. */
void slr_workspace_entered(cublasHandle_t handle);
void slr_workspace_left(cublasHandle_t handle);

static inline void slr_workspace_enter(cublasHandle_t handle)
{
    if (atomic_load_explicit(&slr_workspaces, memory_order_relaxed))
        slr_workspace_entered(handle);
}

static inline void slr_workspace_leave(cublasHandle_t handle)
{
    if (atomic_load_explicit(&slr_workspaces, memory_order_relaxed))
        slr_workspace_left(handle);
}

/* Within such a GEMM: takes the handle from all other threads, so that its stream and workspace may
 * be changed and put back. False: it may be in use (gemm_workspace.c says when). */
bool slr_workspace_take(cublasHandle_t handle);
void slr_workspace_return(cublasHandle_t handle);

struct slr_extent slr_workspace_of(cublasHandle_t handle); /* empty: none; all memory, where one could not be noted */

#endif
