/* SPDX-License-Identifier: Apache-2.0 */
/* What replicas measures: one GEMM, its memory, and the two ways to cut it. */
#ifndef BENCH_REPLICAS_H
#define BENCH_REPLICAS_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include "bench/linked.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"

struct type {
    const char *name;
    cudaDataType type;
    cublasComputeType_t compute;
    size_t bytes;
};

/* `cols` columns of `inner` elements are gathered; C is cols x other (form A/T) or other x cols
 * (B/N). */
struct problem {
    const struct type *type;
    bool at, lt;
    int64_t cols, inner, other;
    struct slr_gemm gemm; /* complete: ready for slr_gemm_part */
    struct slr_lt rest;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t la, lb, lc;
    cublasLtMatmulHeuristicResult_t found;
};

/* A list of parts in the order of one rank. */
enum { MOST_PARTS = 4096 };
struct parts {
    unsigned count;
    struct slr_part part[MOST_PARTS];
};

/* The cut of slipring: the same on all ranks. */
void replicas_cut(const struct problem *p, int rank, int nranks, struct parts *out);

/* The cut of earlier versions, each rank its own: the own shard whole, then what is expected to
 * have arrived. */
void replicas_old_cut(const struct problem *p, int rank, int nranks, struct parts *out);

/* The settings that both start from. */
extern double replicas_flop_per_byte;

#endif
