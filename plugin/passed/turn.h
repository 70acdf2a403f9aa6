/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls in their turn, and who is in one: calls that NCCL is left, and that somebody follows. */
#ifndef SLR_PLUGIN_PASSED_TURN_H
#define SLR_PLUGIN_PASSED_TURN_H

#include <stdbool.h>
#include "base/real.h"

struct slr_call;
struct slr_comm;
struct slr_turn_call; /* comm/group_kept.h */

/* NCCL's turn: gathers and reduce-scatters that the trials give to NCCL (SLR_R_TRIAL), followed, so that a
 * dead peer is told of.
 *
 * NCCL alone says nothing when a peer dies, and its kernel waits. While ways are tried the program did not choose
 * that, so the watchdog looks at these calls. It asks no driver, which may wait for the device: behind each call
 * the device writes a word (kernels/flags.h, struct slr_turn), on the stream of the call.
 *
 *   made  the host, before the call      done  the device, behind it: made = done, it is over
 *
 * Each call has a pair of its own, as calls on several streams may end in another order than they were made. When
 * SLR_TURNS are under way the next one is not followed. Calls in groups are followed from the group's end on, one
 * for each stream. Sites that stay with NCCL for good are not followed.
 *
 * A peer that is gone (its process has ended, or it has left the communicator) may have ended its part
 * properly. No rank's operation of these is over before every rank's has begun, as each waits for data
 * of each. So then this rank's is about to end, whatever stood before it on its stream; if it does not
 * within a second, the peer has broken it, and the communicator fails as for the ring's gathers: the
 * error is told, and ncclCommAbort ends NCCL's kernel.
 *
 * The thread may hang in the call itself: NCCL connects the ranks in the first one, and waits for them on the
 * host. Then it is told by that call (in_call.h), what waits for the ring is released, and, when it has not come
 * back by then, NCCL's own operations are ended (lifecycle/watchdog.c). That holds for every all-gather and
 * reduce-scatter that NCCL is left: a rank that passes one alone (passed_alone.h) waits in it for others, which
 * have put theirs on the ring.
 *
 * The words are in memory that is registered with CUDA while a word may be written (memory/exports.h). */

/* Before the call, which may hang (in_call.h). `follow`: it is in its turn. Any other one that NCCL is left, and one
 * that can not be followed, has no pair. */
struct slr_turn_call slr_turn_begin(struct slr_comm *c, bool follow);

/* Behind it, on its stream, when it has answered `r`. ncclSuccess, or the error that the call has to return: the
 * communicator's, as it has been told while the call was in NCCL. With ncclInProgress its word is left open, for
 * slr_turn_late(). */
ncclResult_t slr_turn_end(struct slr_comm *c, struct slr_turn_call call, CUstream stream, ncclResult_t r);

/* NCCL has put it on its stream only now (late.h), or (`enqueued` false) that is not known. The watchdog looks at it
 * before that only while the program is being told that it is in progress. */
void slr_turn_late(struct slr_comm *c, int word, CUstream stream, bool enqueued);

/* The same around the real call of an all-gather or reduce-scatter that NCCL is left. In a group nothing is enqueued
 * before its end, which then does both; of no communicator of slipring's there is nothing to do. */
struct slr_turn_call slr_turn_enter(const struct slr_call *call);
ncclResult_t slr_turn_leave(const struct slr_call *call, struct slr_turn_call in, ncclResult_t r);

/* NCCL has such a call of this rank. From host memory. */
bool slr_turns_of(struct slr_comm *c);

#endif
