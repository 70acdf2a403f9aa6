/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in a GEMM hook, or in an all-gather or reduce-scatter that NCCL has: so that a thread which hangs in cuBLAS or
 * NCCL can be told that a communicator has failed.
 *
 * cuBLAS's first call for a kernel may wait for all work of the context. When that waits for a peer that has
 * died, a program with one thread can neither be told nor abort. So the hook itself tells: what holds the
 * context's streams is released, and that very call returns CUBLAS_STATUS_EXECUTION_FAILED.
 *
 * Streams may be released only if the program is told, so the two must not part: a thread that leaves just
 * before the watchdog looks has told nothing. An entry is one word:
 *
 *   FREE  --the thread enters-->  IN(serial)  --it leaves-->  FREE: the call's own result
 *                                 IN(serial)  --the watchdog, compare-and-swap-->  TOLD(serial)
 *                                 TOLD(serial)  --it leaves, by an exchange-->  FREE: the call returns the error
 *
 * Either the watchdog's swap comes first, and the call returns the error, or the thread's exchange does, and
 * the swap fails: nothing is released. A serial is never used again in its entry, so a swap does not hit the
 * entry's next call. An entry is seen late at worst: the watchdog looks again at its next tick.
 *
 * Who is told. A GEMM of a healthy communicator must not lose its result because another one of the same
 * context has failed, perhaps aborted on purpose: with NCCL alone it would not. No call of the driver says what a
 * thread waits for, and time alone does not either: on a busy machine, or where cuBLAS loads a kernel, a call takes
 * seconds that waits for nobody. So a communicator tells only when all of these hold:
 *
 * - Its own gathers hold the context (watchdog.c: holds): a gather of this rank is not over, and the device has come
 *   to a piece of it that a peer has not given. A failed communicator with nothing in flight tells nobody, nor does
 *   one whose gather has not begun: what stands before it, say a kernel of NCCL that waits for the same dead peer,
 *   would hold the GEMM up after a release as well, which then would have told for nothing.
 * - The program does not know yet. A program that has aborted, or has got the error from another call, is never told
 *   here, and neither are calls after the first that hung: they return what cuBLAS says.
 * - The same call has been in for SLIPRING_GEMM_TIMEOUT since the first look at which that held, far longer than
 *   kernels take to load. Looks that come late, as the machine is busy or the process was stopped, count for no more
 *   than SLR_IN_CALL_LOOK_MS each: where the watchdog does not get to run, neither do others. To tell late costs a
 *   program that hangs anyway nothing else than that time.
 *
 * Then a call that has to wait for the context does not return by itself any more. What is left to chance: one that
 * is that slow for another reason while a broken gather holds the context, in a program that does nothing about it.
 * An entry that one communicator has told counts for every other whose gathers hold that context, too: its call
 * returns the error.
 *
 * NCCL's call in its turn (turn.h) is entered as well. NCCL connects the ranks in the first call that needs an
 * algorithm: by messages between the hosts, so that it waits in the call for a peer, and it maps and allocates memory,
 * which may wait for the context. A communicator tells its own calls at once when it has failed: a call on a
 * communicator in error returns the error anyway, and no healthy one loses a result. It returns what slr_comm_answer
 * says. To calls of others it is as to GEMMs: they return ncclRemoteError.
 *
 * So are calls of collectives.def that NCCL has for other reasons, but for their own communicator only, with no
 * context: NCCL alone would keep them from nothing that another one's gathers hold. A rank that passes a call alone
 * (passed_alone.h) waits in NCCL's first one for peers that have put theirs on the ring, and hears of it here.
 *
 * Not entered are NCCL's other calls, of an all-reduce, say. They may hang as well, but so they would with NCCL alone,
 * whose kernel of the gather before would hold the context, and whose first call of an algorithm waits for a peer that
 * has died. There another thread has to abort, as PyTorch's does; that works in this state: ncclCommAbort releases
 * what waits for the ring, takes no lock that the call has, and goes on to NCCL's, which ends the call.
 *
 * Which threads count: those whose current context is the communicator's, whatever their GEMM reads. A whole
 * GEMM on another stream waits for the context as well. Threads beyond SLR_IN_CALL at a time are not seen, nor
 * are GEMMs that do not come here because nothing is pending or measured (interpose/hook.h). */
#ifndef SLR_PLUGIN_PASSED_IN_CALL_H
#define SLR_PLUGIN_PASSED_IN_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

#define SLR_IN_CALL 64u         /* threads at a time */
#define SLR_IN_CALL_LOOK_MS 100 /* between two looks no more than that counts: two ticks */
#define SLR_IN_CALL_HELD_MS 600 /* told, and still in: as long as ncclCommAbort waits for peers to notice */

struct slr_comm;

/* The calling thread enters a hook. `own`: whose call NCCL has; NULL: a GEMM. `ctx` NULL: others do not tell it. What
 * to leave by. */
unsigned slr_in_call_enter(CUcontext ctx, const struct slr_comm *own);

/* It leaves. False: it has been told, so its call has to return the error. */
bool slr_in_call_leave(unsigned entry);

enum slr_in_call {
    SLR_IN_CALL_NONE, /* nobody has been told */
    SLR_IN_CALL_TOLD, /* a call in that context returns the error */
    SLR_IN_CALL_HELD  /* and has been in for SLR_IN_CALL_HELD_MS since */
};

/* The watchdog's, of a communicator that has failed, its error set. `now`: slr_now_ms(). Tells who has been in
 * for `limit` ms; 0: nobody, and whom others have told counts. Under the look lock. No call of the driver. */
enum slr_in_call slr_in_call_tell(CUcontext ctx, uint64_t now, uint64_t limit);

/* The same for NCCL's calls of the communicator itself. False: none is in. *since: told so many ms ago. */
bool slr_in_call_tell_own(const struct slr_comm *c, uint64_t now, uint64_t *since);

#endif
