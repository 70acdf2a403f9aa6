/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a test's ranks as processes. The parent never calls CUDA, so forking is safe. */
#ifndef SOFTGPU_TEST_RANKS_H
#define SOFTGPU_TEST_RANKS_H

#include "../../blas/test/cu.h"
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_RANKS 8

/* For the ranks: a failed check ends the process with a message. */
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s (NCCL says: %s)\n", __FILE__, __LINE__, #cond, ncclGetLastError(NULL));         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(call) CHECK((call) == 0)

struct rank {
    int rank, nranks;
    ncclUniqueId id;
    struct cu cu;
    CUstream stream;
    ncclComm_t comm;
    char *shared; /* a page that all ranks of the test share */
};

typedef void (*rank_fn)(struct rank *r);

/* Runs fn on `nranks` processes, each with device `rank`, a stream and (when `connect`) a communicator, and returns how
 * many of them did not exit with 0. */
int run_ranks(int nranks, int connect, rank_fn fn);

/* The same without waiting: for tests that kill ranks. */
void start_ranks(pid_t *pids, int nranks, int connect, rank_fn fn);
int wait_ranks(const pid_t *pids, int nranks);

/* Device memory filled with bytes from a generator; `seed` makes ranks differ. */
CUdeviceptr device_bytes(struct rank *r, size_t bytes, unsigned seed);
void fill_bytes(unsigned char *p, size_t bytes, unsigned seed);
/* The device's bytes are those of the generator. */
int same_bytes(struct rank *r, CUdeviceptr mem, size_t bytes, unsigned seed);

/* Waits up to `ms` for the communicator's asynchronous error to differ from `from`; returns it. */
ncclResult_t wait_async_error(ncclComm_t comm, ncclResult_t from, int ms);

#endif
