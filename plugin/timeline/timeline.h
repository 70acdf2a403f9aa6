/* Measuring all-gathers on the device (SLIPRING_TRACE): when each copy, wait and GEMM part of a sampled call began and
 * ended, on one clock for all ranks of the host. docs/tracing.md says what the lines mean.
 *
 * A sampled call has a record (kernels/timing.h) from its beginning until nothing of it is pending any more; then it is
 * *closed*, and the house-keeping thread writes its lines when all of its events are complete, and uses it again.
 * Nothing waits on the application's threads. There are SLR_TIMELINE_RECORDS for each communicator; a call that finds none
 * free is not measured and counted.
 *
 *   record   free --sampled call--> open --no stream has to wait for the gather any more--> closed --read--> free
 *
 * Whatever goes wrong with an event costs the sample and nothing else. The records of a communicator that has failed
 * are dropped: what released waits let through says nothing.
 *
 * How long an application's stream stands still for a gather is measured around the wait that joins it. One wait does
 * not count: that of the stream of the call, after another one has taken the gather over by an event, because what
 * computes is on the other.
 *
 * Locks: the open record of the ring belongs to the communicator's lock, which is taken before the trace's own; a call
 * that NCCL gets has its record to itself. No CUDA call but those of the reader is made under the trace's lock.
 */
#ifndef SLR_PLUGIN_TIMELINE_TIMELINE_H
#define SLR_PLUGIN_TIMELINE_TIMELINE_H

#include "plugin/comm/call.h"

#define SLR_TIMELINE_RECORDS 256
#define SLR_TIMELINE_EVENTS 65536 /* and no further record is made when they have so many events together */

/* Under the communicator's lock, the communicator's context current: the call is about to be enqueued on the ring. Sets
 * ring.timing when it is to be measured. */
void slr_timeline_begin(const struct slr_call *call);

/* It has been, or that has failed. */
void slr_timeline_enqueued(struct slr_comm *c, const struct slr_gather *g, enum slr_status s);

/* Why a stream is made to wait for the gather, or SLR_R_FUSED. */
void slr_timeline_joined(const struct slr_comm *c, enum slr_reason why);

/* Nothing of the gather is pending any more. */
void slr_timeline_close(struct slr_comm *c);

/* For the house-keeping thread: writes what is complete. */
void slr_timeline_tick(struct slr_comm *c);

/* The communicator ends: what is complete is written, all is freed. */
void slr_timeline_dispose(struct slr_comm *c);

#endif
