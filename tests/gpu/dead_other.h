/* SPDX-License-Identifier: Apache-2.0 */
/* A second thread of a rank, which aborts when the first is in a call and does not come back. cuBLAS's first call for a
 * new kernel waits for the device, for one. slipring lets go of what it moves itself, and the GEMM returns an error; but
 * not of a kernel of NCCL, nor a thread that hangs in something else. PyTorch has such a second thread, too. */
#ifndef TESTS_GPU_DEAD_OTHER_H
#define TESTS_GPU_DEAD_OTHER_H

#include <nccl.h>
#include <pthread.h>
#include "dead.h"

#define DEAD_PATIENCE_US 3000000 /* after the signal, for an error; what is promised is 2 s */

struct dead_other {
    const struct dead_page *page;
    ncclComm_t comm;
    pthread_t thread;
    pthread_mutex_t lock;
    bool begun;
    /* Under the lock, until the thread has ended. */
    int64_t called; /* when the first thread went into its calls; 0: it is in none */
    bool freed;     /* the communicator is aborted by this thread: nobody else may use it */
    bool over;
    int64_t end_us; /* how long that took */
};

/* Only a peer that is killed is a reason. */
void dead_other_begin(struct dead_other *o, const struct dead_page *page, ncclComm_t comm);
void dead_other_end(struct dead_other *o);

/* Around calls that may wait for the device. False: it has aborted. Without dead_other_begin they do nothing, as
 * dead_other_end. */
void dead_calls_begin(struct dead_other *o);
bool dead_calls_end(struct dead_other *o);

#endif
