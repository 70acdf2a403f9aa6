/* Gathers that a rank leaves to NCCL by its own decision: it runs them from a graph (design rule R6), or makes them in
 * a region (slipring.h).
 *
 * A gather that is recorded into a graph is no call: NCCL moves nothing. Each launch of the graph calls what it holds
 * (graphs.h). A graph that is thrown away has called nothing.
 *
 * Only this rank knows that it does. When all ranks leave the same call nothing is lost. When some leave what others
 * make, the others' rings wait for this rank: its call of that number never comes, or worse, is the next one. slipring
 * can not mend that, because the others have enqueued their part before anybody knows, but it is found, and the
 * communicator fails on all ranks with a message instead of waiting for ever or taking the wrong data:
 *
 *   a rank that leaves a call counts it and posts {count, number of the call that comes next}, and why
 *   its peers' watchdogs fail when they have made that call without having left as many
 *   each call carries the count at its time, and each record of transfer.h that of the first side; the second side fails
 *   when that of its own call is another
 *
 * The count is posted before the call that it precedes is made, so ranks that leave alike never differ in either. In a
 * group calls are made when it ends; those that it has recorded come before what is left now.
 */
#ifndef SLR_PLUGIN_GATHER_PASSED_ALONE_H
#define SLR_PLUGIN_GATHER_PASSED_ALONE_H

#include "plugin/comm/call.h"

/* True for the reasons for which a rank leaves a call without the others' knowing. */
static inline bool slr_passes_alone(enum slr_reason why)
{
    return why == SLR_R_CAPTURE || why == SLR_R_REGION;
}

/* This rank leaves so many calls of `c` to NCCL now. */
void slr_alone_note(struct slr_comm *c, enum slr_reason why, uint32_t calls);

/* `theirs`: what the peer had left when it made the call that this rank is about to make. */
void slr_alone_compare(const struct slr_call *call, int peer, uint32_t theirs);

/* For the watchdog: whether the peer has left what this rank has made. */
void slr_alone_look(struct slr_comm *c, int peer);

#endif
