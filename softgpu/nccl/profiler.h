/* SPDX-License-Identifier: Apache-2.0 */
/* Profiler plugins, called as NCCL 2.28 calls them (interface v5; see plugin/abi/profiler.h for the events).
 *
 *   GroupApi( CollApi | P2pApi ... ) on the application's thread, where the calls are made
 *   Group( Coll | P2p ... )          once they are launched: on that thread, for captured ones on a thread of the
 * driver at every replay KernelCh                         started and stopped by a thread of this library's own, when
 * the kernel has begun and ended, mostly after the operation's own stop
 *
 * All operations of one launch have that launch's times. Gather, scatter and all-to-all are not announced. The GPU's
 * clock is CLOCK_REALTIME. */
#ifndef SOFTGPU_NCCL_PROFILER_H
#define SOFTGPU_NCCL_PROFILER_H

#include <stdint.h>

struct ncclComm;
struct op;
struct profiler; /* of a communicator */
struct profiled; /* one launch of operations */

/* When a communicator has met its ranks; nothing without a plugin. */
void profiler_open(struct ncclComm *comm);
/* Before it goes: kernels that have not run are not waited for. */
void profiler_close(struct ncclComm *comm);

/* The application calls `op`, alone or (`grouped`) in a group; sets its event. */
void profiler_call(struct op *op, int grouped);
/* The launch of the calling thread's calls, and that it is over. */
void profiler_launching(void);
void profiler_launched(void);

/* A launch that is about to be made of the operations; NULL: nobody wants to know. */
struct profiled *profiled_new(struct ncclComm *comm, const struct op *ops);
void profiled_launched(struct profiled *p, const struct op *ops); /* it was */
void profiled_drop(struct profiled *p);                           /* it failed */
void profiled_begun(struct profiled *p);                          /* on the GPU */
void profiled_ended(struct profiled *p);

#endif
