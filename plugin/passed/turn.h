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

/* NCCL has put it on its stream only now (below), or (`enqueued` false) that is not known. The watchdog looks at it
 * before that only while the program is being told that it is in progress. */
void slr_turn_late(struct slr_comm *c, int word, CUstream stream, bool enqueued);

/* The same around the real call of an all-gather or reduce-scatter that NCCL is left. In a group nothing is enqueued
 * before its end, which then does both; of no communicator of slipring's there is nothing to do. */
struct slr_turn_call slr_turn_enter(const struct slr_call *call);
ncclResult_t slr_turn_leave(const struct slr_call *call, struct slr_turn_call in, ncclResult_t r);

/* NCCL has such a call of this rank. From host memory. */
bool slr_turns_of(struct slr_comm *c);

/* ---- late ---- */

/* Calls that NCCL has taken and will put on their streams later, as the communicator is not blocking: the call returns
 * ncclInProgress, and a thread of NCCL's goes on. What slipring does behind a call on its stream (its place in the
 * order of the communicator's operations, the word that says that it is over, the end of its time in the trials) has to
 * wait for that. It is kept, and done
 *
 *   when the thread that made the call asks ncclCommGetAsyncError, and NCCL's part is there: NCCL's rule is that
 *     nothing else may be called before;
 *   else before the communicator's next call, or before the stream goes. The streams may have more work by then, and
 *     what waits for NCCL's waits for that, too. Another thread that only asks, as watchdogs do, does nothing: it must
 *     not wait for the communicator's lock.
 *
 * Streams of one communicator in one group wait for each other then, where the ring has a part in it (calls/group.c). */

/* NCCL has something for the stream; `word`: of a call in its turn (above), or SLR_NO_WORD; `crosses`: the
 * communicator's other streams that do are to wait for it. */
void slr_late_stream(struct slr_comm *c, CUstream stream, int word, bool crosses);

/* The call has left (comm/call.h), but is not over. */
void slr_late_call(const struct slr_call *call, int word);

/* Before a call on the communicator. ncclInProgress: NCCL is not that far, and would refuse the call. */
ncclResult_t slr_late_settle(struct slr_comm *c);

/* The program is being told that NCCL's part is there, or has failed. */
void slr_late_told(struct slr_comm *c, ncclResult_t state);

/* The stream is about to be destroyed. Cheap. */
void slr_late_stream_end(CUstream stream);

/* The communicator ends: it is not done any more. */
void slr_late_drop(struct slr_comm *c);

#endif
