/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef SLR_PLUGIN_PASSED_LATE_H
#define SLR_PLUGIN_PASSED_LATE_H

#include <stdbool.h>
#include "base/real.h"

struct slr_call;
struct slr_comm;

/* NCCL has something for the stream; `word`: of a call in its turn (turn.h), or SLR_NO_WORD; `crosses`: the
 * communicator's other streams that do are to wait for it. */
void slr_late_stream(struct slr_comm *c, CUstream stream, int word, bool crosses);

/* The call has left (comm/watch.h), but is not over. */
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
