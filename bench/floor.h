/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of floor share. floor.c takes turns and prints, floor_ways.c holds the schedules,
 * floor_data.c what is multiplied and what has to come out, floor_gpus.c devices and memory. One
 * thread. A call that fails ends the program.
 *
 * A shape is M x K gathered elements and K x N of each GPU's own, bf16. Both operands and the result
 * have their rows one after the other: for cuBLAS the product is T/N, m = N, n = M. */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { GPUS = 2, MOST_PIECES = 4, MOST_ITERATIONS = 24 };
enum { WRONG = 1, USAGE = 2, FAILED = 3, LATE = 4, NO_GPUS = 77 }; /* exit status */

#define DIE(status, ...)                                                                                               \
    (fprintf(stderr, "floor: "), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), fflush(NULL), exit(status))
/* Status 0 or the end, of any library. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const int status_ = (int)(call);                                                                               \
        if (status_ != 0)                                                                                              \
            DIE(FAILED, "%s: status %d", #call, status_);                                                              \
    } while (0)

struct shape {
    size_t m, k, n; /* m is even */
};

typedef uint16_t bf16;

extern struct gpu {
    cudaStream_t compute, copy;          /* of the GEMMs; of what copy engines do */
    cudaStream_t low;                    /* of the least priority, for the copy within the device */
    cudaEvent_t reached;                 /* the compute stream is at the gather */
    cudaEvent_t piece[MOST_PIECES], own; /* have been pulled; the own shard is in its place */
    cudaEvent_t start, stop;             /* with times */
    cublasHandle_t blas;
    bf16 *send;         /* m/2 x k; the other GPU reads it */
    bf16 *recv;         /* m x k, as gathered: GPU 0's shard first; the other GPU reads it */
    bf16 *weight, *out; /* n x k; m x n */
} gpu[GPUS];

/* ---- floor_gpus.c ---- */

/* The first two devices, with memory that is large enough for each of the shapes. */
void gpus_open(const struct shape *shapes, int count);

/* The device becomes the current one. */
void on(int device);

/* Holds what comes behind it in the stream of the current device until the gate is open. While it
 * holds a stream nothing may be called that waits for the device, as cuBLAS does when it runs a
 * kernel for the first time. */
void gate_wait(cudaStream_t stream);
void gate_set(bool open);

/* ---- floor_ways.c ---- */

/* How the own shard gets to its place: not at all, as if it was there, or beside the rest. */
enum own { OWN_NONE, OWN_MEMCPY, OWN_BACK, OWN_WAYS };
extern const char *const own_name[OWN_WAYS];

struct way {
    enum { GEMM_ALONE, COPY_ALONE, SCHEDULE } kind;
    const struct cut *cut; /* of a schedule: how both shards are cut; */
    bool own_whole;        /* but the own one's GEMM is not */
    enum own own;
};

/* The GEMM alone, the copy alone, then the schedules. */
enum { MOST_WAYS = 40 };
int ways_list(struct way *out);
const char *way_name(const struct way *way, char *buf, size_t size);

/* Two iterations, for their results. Returns when they are done. */
void way_run(const struct way *way, const struct shape *shape);

/* Milliseconds of an iteration on the slower GPU. The way has to have run before. All iterations are
 * enqueued before the first one begins; the first quarter does not count. */
double way_ms(const struct way *way, const struct shape *shape, int iterations);

/* ---- floor_data.c ---- */

/* Fills send and weight, and recv as the gather has to leave it. */
void data_small_integers(const struct shape *shape);
void data_random(const struct shape *shape);

/* Runs each of the ways on small integers; a wrong element ends the program. Returns the number of
 * elements that were compared. */
size_t data_check(const struct way *ways, int count, const struct shape *shape);

#endif
