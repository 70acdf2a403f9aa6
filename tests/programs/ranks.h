/* SPDX-License-Identifier: Apache-2.0 */
/* A small harness for programs with several ranks. The programs know nothing of slipring: plain cudart, NCCL and
 * cuBLAS, as a user writes them.
 *
 * Each rank is a process (forked before anything of CUDA starts) or, for single-process programs, a thread. Checks
 * print what they found and where, and end the rank with exit status 1 (wrong result) or 3 (a vendor call failed); the
 * parent waits for all, names the ranks that failed, and ends with the worst status. A rank that does not end in time
 * is killed: status 4; or that of the rank that failed before, when one did. RANKS_SECONDS: another time than the
 * program's own, for a test in which ranks have to hang.
 */
#ifndef TESTS_E2E_RANKS_H
#define TESTS_E2E_RANKS_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct rank {
    int rank, nranks;
    ncclUniqueId id; /* made by rank 0 */
    ncclComm_t comm;
    cudaStream_t stream;
    void *arg;
};

/* For the arithmetic of what is expected: under a sanitizer it would take most of a test's time. */
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

typedef void (*rank_body)(struct rank *r);

/* Called in each rank's process before anything of CUDA, e.g. for its environment. NULL: nothing. */
extern void (*ranks_begin)(int rank);

/* Forks `nranks` processes; each runs `body` with `id` filled and its device (rank modulo device count) current.
 * Returns the exit status for main(). */
int ranks_run(int nranks, int seconds, rank_body body, void *arg);

/* The device of a rank: its number modulo the number of devices. */
int rank_device(int rank);

/* Makes that device current. When ranks share devices, as they do where there are fewer: their processes are told to
 * NCCL as hosts of their own, so before its first call. */
void rank_place(int rank, int nranks);

/* With TEST_HOSTS in the environment this machine is to be taken for several hosts: a number is how many ranks each has,
 * a list of numbers the host of each rank. Before anything of CUDA or NCCL in the rank's process. */
void rank_name_host(int rank);

/* ncclCommInitRank and a stream of its own; the other way round. */
void rank_open(struct rank *r);
void rank_close(struct rank *r);

/* A copy from pageable memory, complete. cudaMemcpy may return before that, and a non-blocking stream does not wait. */
void to_device(void *device, const void *host, size_t bytes);

/* A counter-based generator: byte i of stream `seed`. In the header, as programs call it for each element that they write
 * or compare. */
UNWATCHED static inline uint64_t hash64(uint64_t seed, uint64_t i)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + i + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The 8 bytes from each i on are hash64(seed, i); of the last ones as many as there are. */
void hash_fill(uint8_t *host, size_t bytes, uint64_t seed);

/* The first byte, to 8, that is not as hash_fill writes it; `bytes` if there is none. */
size_t hash_differs(const uint8_t *host, size_t bytes, uint64_t seed);

#define DIE(status, ...)                                                                                               \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), fflush(NULL),  \
     exit(status))
#define CHECK(cond, ...) ((cond) ? (void)0 : (void)DIE(1, __VA_ARGS__))
#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess)                                                                                         \
            DIE(3, "%s: %s", #call, cudaGetErrorString(e_));                                                           \
    } while (0)
#define NCCL(call)                                                                                                     \
    do {                                                                                                               \
        ncclResult_t e_ = (call);                                                                                      \
        if (e_ != ncclSuccess)                                                                                         \
            DIE(3, "%s: %s", #call, ncclGetErrorString(e_));                                                           \
    } while (0)
#define BLAS(call)                                                                                                     \
    do {                                                                                                               \
        cublasStatus_t e_ = (call);                                                                                    \
        if (e_ != CUBLAS_STATUS_SUCCESS)                                                                               \
            DIE(3, "%s: status %d", #call, (int)e_);                                                                   \
    } while (0)

#endif
