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
 *   decide                        the communicator, whether the row may have any, arguments, size, whether it has such
 *                                 ones, this rank's state, whether NCCL needs the call, the way
 *   record    record/record.h     it is captured: into the graph, or left to NCCL
 *   connect   connect/connect.h   the first one connects the ranks; then the row can, or can not
 *   note                          counted, and logged
 *   run       in a group: kept for its end (group.c). Else over the ring: entered, numbered, verified; or NCCL's */
#ifndef SLR_PLUGIN_CALLS_COLLECTIVE_H
#define SLR_PLUGIN_CALLS_COLLECTIVE_H

#include "plugin/comm/call.h"

/* The rows: rows.c. */
extern const struct slr_flow slr_flow_all_gather, slr_flow_reduce_scatter, slr_flow_all_reduce;

/* From the hook: makes the call, or holds it until it is known whether its group has more. */
ncclResult_t slr_call_begin(struct slr_call *call);

/* Decides, and moves the call to the ring, keeps it for the end of its group, or passes it to NCCL. */
ncclResult_t slr_call_make(struct slr_call *call);

/* Counts and logs the decision (one line for each distinct shape), and who makes the call (callers/callers.h). Under no
 * lock. */
void slr_call_note(struct slr_call *call, enum slr_reason why);

/* Begins an NVTX range (base/nvtx.h); what it returns goes to slr_nvtx_end. */
bool slr_call_nvtx(const struct slr_call *call);

/* ---- passed.c: what stays with NCCL is measured (timeline.h) when it is its turn ---- */

/* The call stays with NCCL for one of passed_alone.h's reasons: it is counted, or on a capturing
 * stream, the graph holds it. */
void slr_gather_passes_alone(const struct slr_call *call, enum slr_reason why);

/* SLIPRING_VERIFY: a sample of the calls that the ring moves is done by NCCL too, and compared
 * (gather/verify.h, scatter/scatter.h).
 *
 *   prepare   each call's memory
 *   NCCL      one call: of each rank of its communicator that this thread has, in one group of NCCL's
 *   ring      the same call, of these ranks. Then NCCL has the next one
 *   finish    the ring is joined to the streams; the host waits for these and compares
 *
 * Another rank may make these calls one by one, with no group: it does NCCL's part, the ring's, and waits for
 * both on the host before it comes to its next call. So NCCL's kernel of a call must not wait for the ring's of
 * the same one: it comes before. And NCCL's next one must not come before this call is on the ring: NCCL connects
 * the ranks in the call (passed/in_call.h), where the host would wait for that rank, which waits for this ring. For
 * the same reason no group of NCCL's has two calls of a communicator: whatever groups the ranks make, each of them
 * has the same sequence of NCCL's operations. Ranks that group calls of several communicators in another order
 * than others may wait for each other when NCCL connects, as they would without groups. */

/* n numbered calls: those with `verify` set are prepared, and NCCL does them; `ring` enqueues each of all. In the order
 * in which they were made, but for ranks of one communicator, whose same calls come together. */
ncclResult_t slr_verified_run(struct slr_call *calls, size_t n, ncclResult_t (*ring)(const struct slr_call *call));

/* The same of one call that is moved otherwise: only what comes before that. */
ncclResult_t slr_verified_begin(struct slr_call *call);

/* The ring has been joined. Compares, and frees what start allocated; `r` != ncclSuccess: does only that,
 * and returns r. */
ncclResult_t slr_verified_finish(const struct slr_call *calls, size_t n, ncclResult_t r);

#endif
