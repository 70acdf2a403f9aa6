/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of flight.c move: an all-gather of bytes, or the output of a GEMM that is reduced, and scattered or
 * spread, in place or not. Data that every rank can compute by itself. */
#ifndef TESTS_FAULTS_MOVED_H
#define TESTS_FAULTS_MOVED_H

#include <cublas_v2.h>

#include "player.h"

struct moved {
    struct buffers b;
    bool scatter, all, in_place; /* of a GEMM; all of it; to where it is */
    int m, n, k, got;            /* C is m x n, of whose sum each rank gets `got` columns */
    float *a, *weight, *c, *spare, *recv, *host;
    cublasHandle_t blas;
};

/* `what`: NULL, gather, scatter, reduce, reduce-in-place. */
void moved_make(struct moved *v, const struct rank *r, size_t shard, const char *what);

/* New data, poison where the result goes; waits for it. */
void moved_fill(struct moved *v, const struct rank *r, unsigned round);

/* The GEMM; nothing for a gather. */
void moved_produce(struct moved *v, cudaStream_t stream);
ncclResult_t moved_call(struct moved *v, const struct rank *r);

/* A reduce-scatter of other data, whose result nobody looks at. */
ncclResult_t moved_again(const struct moved *v, const struct rank *r);

/* The result of round `round`; C as the GEMM leaves it, where the result goes elsewhere. Wait for nothing that is queued. */
void moved_check(struct moved *v, const struct rank *r, unsigned round);
void moved_check_produced(struct moved *v, const struct rank *r, unsigned round);

/* Something that is to be read or written after the call. */
void *moved_sent(const struct moved *v);

#endif
