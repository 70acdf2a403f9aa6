/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: its communicators, matrices and loops. Runs in a process or a thread of its own. */
#ifndef AG_RANK_H
#define AG_RANK_H

#include "ag_data.h"
#include "ag_options.h"
#include "ag_shape.h"
#include "ag_shared.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

enum { AG_MAX_LANES = 16, AG_MAX_BURST = 8 };

/* A stream with its own matrices. Device pointers unless said otherwise. */
struct ag_lane {
    cudaStream_t stream;
    cudaStream_t side; /* where it gathers; `stream` without --side-stream */
    cublasHandle_t blas;
    struct ag_lt *lt;       /* --api lt, lt-bias */
    ncclComm_t comm;        /* one of the rank's */
    void *gathered, *shard; /* in place: shard points into gathered */
    void *weight, *scratch; /* scratch: target of --interpose-op */
    void *c[AG_MAX_BURST];
    void *kept[AG_MAX_BURST];   /* copies of gathered, for checking */
    void *staged[AG_MAX_BURST]; /* pinned host memory: the shard's next contents */
    cudaEvent_t ended;
    cudaEvent_t may_gather, has_gathered; /* between `stream` and `side` */
};

struct ag_rank {
    const struct ag_options *options;
    struct ag_shared *shared;
    struct ag_record *record;
    struct ag_data data; /* with the shape */
    int rank, device_index;
    int lane_count, owns_streams;
    uint64_t rounds; /* checked rounds so far; the data depend on it */
    ncclComm_t comms[AG_MAX_COMMS];
    struct ag_lane lanes[AG_MAX_LANES];
    cudaEvent_t fork;
};

/* Runs the rank from init to finish and ends its record. `device_index` is the rank within the
 * host. */
void ag_rank_run(const struct ag_options *options, struct ag_shared *shared, int rank, int device_index);

/* ag_place.c. Notes where the rank is; the place for --kill-rank to strike. */
void ag_enter(struct ag_rank *r, enum ag_phase phase, long iteration);

/* Records that `call` failed, on stderr and in the record; returns -1. The first failure of a rank
 * counts. */
int ag_failed(struct ag_rank *r, const char *call, const char *error, const char *text);
const char *ag_blas_error(cublasStatus_t status);

/* Each returns -1 from the function around it when the call fails. `r` is the rank. */
#define AG_CUDA(r, call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t ag_status_ = (call);                                                                         \
        if (ag_status_ != cudaSuccess)                                                                                 \
            return ag_failed(r, #call, cudaGetErrorName(ag_status_), cudaGetErrorString(ag_status_));                  \
    } while (0)
#define AG_NCCL(r, call)                                                                                               \
    do {                                                                                                               \
        const ncclResult_t ag_status_ = (call);                                                                        \
        if (ag_status_ != ncclSuccess)                                                                                 \
            return ag_failed(r, #call, "NCCL", ncclGetErrorString(ag_status_));                                        \
    } while (0)
#define AG_BLAS(r, call)                                                                                               \
    do {                                                                                                               \
        const cublasStatus_t ag_status_ = (call);                                                                      \
        if (ag_status_ != CUBLAS_STATUS_SUCCESS)                                                                       \
            return ag_failed(r, #call, "cuBLAS", ag_blas_error(ag_status_));                                           \
    } while (0)
#define AG_TRY(call)                                                                                                   \
    do {                                                                                                               \
        if ((call) != 0)                                                                                               \
            return -1;                                                                                                 \
    } while (0)

/* ag_lane.c: matrices and the operations on them. */
int ag_lanes_make(struct ag_rank *r);
int ag_lanes_free(struct ag_rank *r);
int ag_gather(struct ag_rank *r, struct ag_lane *lane);
int ag_between(struct ag_rank *r, struct ag_lane *lane);
/* C number `slot` = A * B (+ beta * C). */
int ag_gemm(struct ag_rank *r, struct ag_lane *lane, int slot);

/* ag_check.c: checked rounds; counts and the first wrong element go to the record. */
int ag_check_rounds(struct ag_rank *r);

/* ag_time.c: the four timed loops. */
int ag_time_loops(struct ag_rank *r);

static inline size_t ag_c_elements(const struct ag_shape *s)
{
    return (size_t)s->m * (size_t)s->n;
}

#endif
