/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers that a rank passes alone: it leaves them to NCCL by its own decision, because it runs
 * them from a graph (design rule R6) or makes them in a region (slipring.h).
 *
 * A gather that is recorded into a graph is no call: NCCL moves nothing. Each launch of the graph
 * makes the calls that it holds (graphs.h). A graph that is thrown away has called nothing.
 *
 * Only this rank knows that it passes. When all ranks pass the same call, nothing is lost. When
 * some pass what others move, the others' rings wait for this rank, whose call of that number never
 * comes, or is another one. slipring can not mend that, because the others have enqueued their part
 * before anybody knows. But it is found, and the communicator fails on all ranks with a message
 * instead of waiting for ever or taking the wrong data:
 *
 *   publish   A rank that passes a call counts it and publishes {count, number of the call that it
 *             moves next}, and why.
 *   watch     A peer's watchdog fails when the peer has moved that call and passed fewer.
 *   compare   Each call carries the count of its time, and each transfer descriptor that of its
 *             first side. The second side fails when its own call has another count.
 *
 * NCCL connects the ranks in its first call, and the passing rank then waits in that for the others; it hears there of
 * the failure (in_call.h). One that captures a call has published nothing yet: it waits until SLIPRING_STALL_TIMEOUT,
 * where that is set, fails the others.
 *
 * The count is published before the call that it precedes is made, so ranks that pass alike never
 * differ in either. In a group, calls are made when it ends: those that it has kept come before
 * what is passed now.
 *
 * Where ranks share a process, NCCL has the communicator's first call (calls/collective.c): the first of those that are
 * numbered or counted here, on every rank, which counts it as passed. So a rank that passes it in a region, or by a
 * graph, has done as the others; one that replays it over the ring has not, and that is found.
 *
 * How often the body of a conditional node runs is decided on the device. A rank that has launched a graph with such
 * calls in a body has no count any more (*uncounted*), and is not compared from its next call on: ranks that do the
 * same differ in nothing, and those that make the calls in plain graphs, with NCCL, are right.
 */
#ifndef SLR_PLUGIN_PASSED_PASSED_ALONE_H
#define SLR_PLUGIN_PASSED_PASSED_ALONE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct slr_call;
struct slr_comm;

/* True for the reasons for which a rank passes a call without the others' knowing, or others may have it otherwise. */
static inline bool slr_passes_alone(enum slr_reason why)
{
    return why == SLR_R_CAPTURE || why == SLR_R_REGION || why == SLR_R_NCCL_FIRST;
}

/* This rank passes so many calls of `c` now. Thread-safe. */
void slr_alone_note(struct slr_comm *c, enum slr_reason why, uint32_t calls);

/* It may have passed any number of calls. For good. Thread-safe. */
void slr_alone_uncounted(struct slr_comm *c);

/* `theirs`: how many the peer had passed when it made the call that this rank is about to make.
 * Fails the communicator when this rank has passed another number. */
void slr_alone_compare(const struct slr_call *call, int peer, uint32_t theirs);

/* For the watchdog: whether the peer has passed what this rank has moved, which fails the
 * communicator. */
void slr_alone_look(struct slr_comm *c, int peer);

#endif
