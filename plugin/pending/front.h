/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's kernels in front of what is enqueued behind them.
 *
 * A program that sets CUDA_DEVICE_MAX_CONNECTIONS=1, as Megatron-LM does, has all its streams share one hardware queue,
 * so that work begins in the order in which it was enqueued: NCCL's kernel on one stream before the next GEMM on another
 * one, which would leave it no multiprocessor. The ring needs more queues (interpose/connections.c), and has no such
 * kernel; but what stays with NCCL would lose that order (3.7% of a step, docs/measurements.md). So events make it:
 *
 *   launch      of a kernel, by NCCL in a call that slipring has forwarded: with a launch completion event, which
 *               completes when all blocks of the kernel have begun (CUDA 12.3). The communicator is in front then.
 *   operation   the program's next one in that context ends it. If it is on another stream, that one waits for the
 *               event first. The host's waits are none: with one queue they do not stand behind the launch either.
 *
 * It can not deadlock where the program with one queue does not: the operation stands behind the launch there, too. In
 * captures nothing is made. A driver that refuses the event gets the launch as it is, and no further ones.
 *
 * Threads: any. Who is in front is changed under a lock of front.c's, innermost, never held over a call of the driver; a
 * communicator's event belongs to the thread that is in its call. */
#ifndef SLR_PLUGIN_PENDING_FRONT_H
#define SLR_PLUGIN_PENDING_FRONT_H

#include <stdbool.h>
#include "base/real.h"

struct slr_comm;

/* The program has asked for one queue, and has got more. */
void slr_front_on(void);

/* Around a real call that may launch kernels of the communicator's; NULL: of none. Within another such call nothing. */
void slr_front_begin(ncclComm_t comm);
void slr_front_end(void);

/* cuLaunchKernelEx, or its other form, and what it is called with. */
typedef CUresult slr_launch_fn(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
struct slr_launch {
    const CUlaunchConfig *config;
    CUfunction function;
    void **params, **extra;
};

/* For the gate, with the guard up. True: it is launched, *answer is what the function returns. */
bool slr_front_launch(slr_launch_fn *launch, const struct slr_launch *l, CUresult *answer);

/* The program is about to put an operation on the stream, a name that slr_stream_name() returned. With the guard up,
 * without locks. One load when nothing is in front. */
void slr_front_operation(CUstream stream);

/* The communicator is not found any more, or only as an orphan: from here on it is not in front, so nobody holds it for
 * that. Who does already is waited for, as all its users are. */
void slr_front_leave(struct slr_comm *c);

/* The communicator ends, without users; its context is current unless that has gone. */
void slr_front_close(struct slr_comm *c, bool gone);

#endif
