/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder calls/ alone: the way of one call of a collective that the ring can serve, from the hook on.
 *
 *   ncclGroupStart   call ............................ held, if it is the first of its group
 *   (none)           call -> slr_call_make              at once
 *   held             the outermost ncclGroupEnd      -> the real end, then slr_call_make: as without a group
 *                    another function of NCCL's      -> slr_call_make in the group, before that one
 *
 * **A group that holds one call is that call.** Frameworks group single calls (PyTorch's functional
 * collectives, so DTensor and torch.compile), and NCCL enqueues nothing of a group before its end: what the
 * program can observe of such a call is the same without the group. So it is pending, fused, produced, captured,
 * tried and measured as any other. What is in the group besides must be known before the call is made, as NCCL is
 * told of all of a group's operations in their order; whoever comes second makes the call (slr_group_goes_on).
 *
 * Ranks may group differently (R1): which way a call goes does not depend on it, so a rank that holds it and one
 * that does not go alike, each at the call's place among the communicator's.
 *
 * Held are only calls of communicators that slipring has, with arguments that NCCL does not refuse, outside of a region
 * (slipring.h), and with a built-in reduction: another one may be destroyed before the group ends. So an error of the real call, which
 * ncclGroupEnd returns then, is one that NCCL would find there as well.
 *
 * Thread-local, like NCCL's own group state.
 *
 * **One call** (slr_call_make), of whatever collective; what differs is the row of its flow (comm/call.h):
 *
 *   decide    decide.h            the communicator, what the row may have, arguments, size, this rank's state, the way
 *   record    gather/record.h     it is captured: into the graph, or left to NCCL
 *   connect   connect/connect.h   the first one connects the ranks; then the row can, or can not
 *   note      decide.h            counted, and logged
 *   run       in a group: kept for its end (group.c). Else over the ring: entered, numbered, verified; or NCCL's */
#ifndef SLR_PLUGIN_CALLS_COLLECTIVE_H
#define SLR_PLUGIN_CALLS_COLLECTIVE_H

#include "plugin/comm/call.h"

/* The rows: all_gather.c, reduce_scatter.c. */
extern const struct slr_flow slr_flow_all_gather, slr_flow_reduce_scatter;

/* From the hook: makes the call, or holds it until it is known whether its group has more. */
ncclResult_t slr_call_begin(struct slr_call *call);

/* Decides, and moves the call to the ring, keeps it for the end of its group, or passes it to NCCL. */
ncclResult_t slr_call_make(struct slr_call *call);

#endif
